"""Where a result comes from: code, package versions, machine, command. Recorded in run.json, compared on a resume."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "hydra-core", "omegaconf", "cmr-runner")
PACKAGE_DIRECTORY = Path(__file__).resolve().parents[1]


def now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def shell_command() -> str:
    """The command line that started this process, as it can be typed again."""
    name = Path(sys.argv[0]).name
    words = ["python", "-m", "cmr_runner"] if name == "__main__.py" else [name]
    if "LOCAL_WORLD_SIZE" in os.environ:  # torchrun's
        words = ["torchrun", f"--nproc-per-node={os.environ['LOCAL_WORLD_SIZE']}", "-m", "cmr_runner"]
    return shlex.join([*words, *sys.argv[1:]])


def provenance(*, seed: int, threads: int, device: str, instructions: str, command: str) -> dict[str, Any]:
    """`instructions` is the vector set of the kernels: digits depend on it, and a CPU's name does not tell it."""
    return {
        **source_state(),
        "versions": package_versions(),
        "host": socket.gethostname(),
        "cpu": _cpu(),
        "instructions": instructions,
        "cores": os.cpu_count(),
        "threads": threads,
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "device": device,
        "command": command,
        "seed": seed,
        "start": now(),
        "end": None,
        "resumes": [],
    }


def package_versions() -> dict[str, str]:
    """`package_versions()["torch"]` and so on, from the installed metadata: nothing is imported for it."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package.replace("-", "_")] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@functools.cache
def source_state() -> Mapping[str, Any]:
    """The commit of the checkout this package runs from, whether it was changed since, and a digest of the code."""
    sha = _git("rev-parse", "HEAD") if _git("ls-files", "--error-unmatch", "__init__.py") else None
    dirty = bool(_git("status", "--porcelain", "--", ".", "../conf")) if sha else None
    return {"git_sha": sha, "git_dirty": dirty, "code": _code_digest()}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(PACKAGE_DIRECTORY), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _code_digest() -> str:
    """Twelve hex digits over every .py file: tells code apart where there is no commit, or a changed one."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE_DIRECTORY.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE_DIRECTORY).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What a resume changes under the run's feet, each as one phrase that names it."""
    changed: list[str] = []
    old_versions, new_versions = before.get("versions") or {}, after.get("versions") or {}
    for package in sorted(old_versions.keys() | new_versions.keys()):
        old, new = old_versions.get(package), new_versions.get(package)
        if old != new:
            changed.append(f"{package} was {old or 'absent'}, is {new or 'absent'}")
    if before.get("code") != after.get("code"):
        changed.append(f"cmr_runner's code was {_commit(before)}, is {_commit(after)}")
    for key in ("threads", "processes", "device", "cpu", "instructions"):
        if before.get(key) != after.get(key):
            changed.append(f"{key} was {before.get(key)}, is {after.get(key)}")
    return changed


def same_conditions(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both ran from end to end under the same code, versions and machine: then equal configurations give equal
    bits."""
    changed = (resume.get("changed") for record in (one, other) for resume in record.get("resumes") or [])
    return not differences(one, other) and not any(changed)


def _commit(record: Mapping[str, Any]) -> str:
    sha = record.get("git_sha")
    commit = f"commit {sha[:10]}{' with changes' if record.get('git_dirty') else ''}, " if sha else ""
    return f"{commit}digest {record.get('code')}"
