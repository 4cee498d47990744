"""A Slurm of one node on this machine, for the time of a test session: munged, slurmctld and slurmd on loopback.

All it writes lies in one directory and its ports are free ones, so that several stand side by side. Needs root and
Debian's packages: apt-get install slurm-wlm munge.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PATIENCE = 180.0  # seconds until a daemon that should have acted is given up
CPUS = 2
HOST = socket.gethostname().split(".")[0]


def missing() -> str:
    """Why no Slurm can be started here; empty where one can."""
    absent = [name for name in (*DAEMONS, "sbatch") if shutil.which(name, path=search_path()) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "a Slurm of one's own needs root"


def search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


class Slurm:
    """A running Slurm; `environment` is what its commands need to find it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"SLURM_CONF": str(directory / "slurm.conf")}

    def call(self, *words: str) -> str:
        done = subprocess.run(
            words, env={**os.environ, **self.environment}, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        return done.stdout

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`; with the daemons' last words where it does not come."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.CalledProcessError):
                if condition():
                    return
            time.sleep(0.05)
        logs = "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.directory.glob("*.log"))
        raise RuntimeError(f"waited {PATIENCE} s for Slurm:\n{logs}")

    def clear(self) -> None:
        """End every job."""
        if self.jobs():
            self.call("scancel", "--signal=KILL", "--full", "--user=root")
            self.call("scancel", "--user=root")
            self.until(lambda: not self.jobs())

    @contextlib.contextmanager
    def starting_nothing(self) -> Iterator[None]:
        """What runs goes on, what waits goes on waiting."""
        self.call("scontrol", "update", f"NodeName={HOST}", "State=DRAIN", "Reason=held")
        try:
            yield
        finally:
            self.call("scontrol", "update", f"NodeName={HOST}", "State=RESUME")

    def jobs(self) -> dict[str, str]:
        """Id → state of the jobs that wait or run, each of an array by itself."""
        lines = self.call("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)


@contextlib.contextmanager
def one_node() -> Iterator[Slurm]:
    """Slurm with an idle node; ended, with its jobs, when the block ends."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as name:
        slurm = Slurm(Path(name))
        _write_settings(slurm.directory)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for command in _commands(slurm.directory):
                processes.append(_started(command, slurm))
            slurm.until(lambda: "idle" in slurm.call("sinfo", "--noheader", "--format=%T"))
            yield slurm
        finally:
            _end(slurm, processes)


def _write_settings(directory: Path) -> None:
    # munged refuses a key or a socket in a directory that others may write.
    directory.chmod(0o755)
    key = directory / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(128))
    for name in ("state", "spool"):
        (directory / name).mkdir()
    controller, node = _free_ports(2)
    (directory / "slurm.conf").write_text(
        f"""\
ClusterName=test
SlurmctldHost={HOST}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
# A job that is queued again waits as long as a credential is valid: 120 s by default, 5 s at least.
AuthInfo=socket={directory}/munge.socket,cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
KillWait=5
ReturnToService=2
NodeName={HOST} NodeAddr=127.0.0.1 Port={node} CPUs={CPUS} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _commands(directory: Path) -> list[list[str]]:
    munge = ["--key-file", "munge.key", "--socket", "munge.socket", "--pid-file", "munge.pid", "--seed-file", "seed"]
    paths = [word if word.startswith("--") else str(directory / word) for word in munge]
    return [
        ["munged", "--foreground", "--force", *paths],
        ["slurmctld", "-D", "-c", "-f", str(directory / "slurm.conf")],
        ["slurmd", "-D", "-c", "-f", str(directory / "slurm.conf")],
    ]


def _started(command: list[str], slurm: Slurm) -> subprocess.Popen[bytes]:
    with open(slurm.directory / f"{command[0]}.log", "wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **slurm.environment, "PATH": search_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if command[0] == "munged":
        slurm.until((slurm.directory / "munge.socket").exists)
    return process


def _end(slurm: Slurm, processes: list[subprocess.Popen[bytes]]) -> None:
    with contextlib.suppress(subprocess.SubprocessError, RuntimeError):
        slurm.clear()
    for process in reversed(processes):
        process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
