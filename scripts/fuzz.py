"""Look for what breaks cmr-run: bad values, damaged files and kills, by the thousand and from one seed.

    python scripts/fuzz.py                     a sample
    python scripts/fuzz.py --full              100 kills, 1,000 damaged files, every key × every bad value
    python scripts/fuzz.py --only damages --seed 7

Each case is one cmr-run in a process forked from a warm one, in a directory of its own. The messages below say what
must hold: every broken rule is one line on standard error with the words to repeat it, and the exit code is 1.
"""

import argparse
import csv
import gc
import importlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from hydra import compose, initialize_config_dir

from cmr_runner.commands.composition import config_directory, identity_of, plain_config, register_resolvers
from cmr_runner.commands.entry import main as cmr_run
from cmr_runner.commands.settings import GROUPS, Settings
from cmr_runner.runs.columns import CHECKPOINT, MODEL, PREVIOUS_CHECKPOINT, RUN_FILE, TABLES, TIME_COLUMNS
from cmr_runner.runs.identity import leaves

TINY = (
    "dataset=synthetic",
    "dataset.train=32",
    "dataset.test=16",
    "dataset.shape=[1,8,8]",
    "model.depth=2",
    "model.width=8",
    "trainer.batch_size=16",
    "trainer.epochs=1",
    "spectral_threads=1",
    "progress=lines",
)
# Bad, odd or extreme; some are right for some keys.
VALUES = (
    *("null", "abc", "''", "nan", "inf", "-inf", "-1", "0", "1.5", "1e300", "-1e300", "1e-300"),
    *("99999999999999999999", "true", "[]", "[1,2]", "{a: 1}", "'a b'", "../x", "$HOME", "κ"),
)
TOP_LEVEL = (
    *(field.name for field in fields(Settings)),
    *("output_root", "hydra.run.dir", "hydra.job.chdir", "hydra.sweep.dir", "hydra.sweeper.max_batch_size"),
)
SMALLEST = {"plain": ("model.depth=8",), "resnet": ("model.depth=8",)}  # where TINY's is too small
OFFLINE = ("synthetic", "digits")
EXIT_CODES = (0, 1, 2, 3)
SECONDS = 8.0  # of computing, until a case that goes on is told to stop; and again until it is killed
HUNG_SECONDS = 120.0  # of sleeping, likewise; waiting for a core of a busy machine is no sleep
LONGEST_LOOK = 1.0  # between two looks at a case: what is more was a pause of this process
MEMORY = 6 << 30
# What a run imports as it goes on; torch._dynamo is what the first optimiser imports, in two seconds.
WARM = (
    *("torch._dynamo", "cmr_runner.data.synthetic", "cmr_runner.inits.checkpoint", "cmr_runner.results.summary"),
    *(f"cmr_runner.commands.{name}" for name in ("construction", "execution", "places", "run", "sweep", "torchrun")),
)
PIECES = (RUN_FILE, *TABLES, MODEL, CHECKPOINT, PREVIOUS_CHECKPOINT)


@dataclass(frozen=True)
class Ending:
    code: int  # 128 + signal, if a signal ended it
    out: str
    err: str
    told: bool  # it had to be told to stop


class Fuzzer:
    def __init__(self, root: Path, seed: int, deadline: float) -> None:
        self.root, self.random, self.deadline = root, random.Random(seed), deadline
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self._runs: dict[tuple[str, ...], bool] = {}
        self._number = 0

    def place(self) -> Path:
        self._number += 1
        place = self.root / f"{self._number:06d}"
        place.mkdir()
        return place

    def out_of_time(self) -> bool:
        return time.monotonic() > self.deadline

    def check(self, holds: bool, rule: str, words: object) -> None:
        if not holds:
            self.broken.append(f"{rule}: {words}")
            print(self.broken[-1], file=sys.stderr, flush=True)

    def needed(self, place: Path, *words: str) -> None:
        """A run that the cases start from or are compared with."""
        ending = run(place, *words)
        if ending.code:
            raise SystemExit(f"cmr-run {' '.join(words)} ended with {ending.code}: {ending.err}")

    def check_manners(self, ending: Ending, words: object) -> None:
        """What holds of every run, however it ended."""
        self.check("Traceback" not in ending.err, "no traceback", words)
        self.check(len(ending.err) < 2000, "a message, not a dump", words)
        allowed = (*EXIT_CODES, 128 + signal.SIGTERM) if ending.told else EXIT_CODES
        self.check(
            ending.code in allowed, f"exit code {ending.code} is not one of {allowed}", (words, ending.err[-300:])
        )

    def say_counts(self) -> None:
        for kind, count in sorted(self.counts.items()):
            print(f"{count:6d}  {kind}", flush=True)
        self.counts.clear()

    # Bad values

    def configurations(self, count: int | None) -> None:
        weights = self.place()
        self.needed(weights, *TINY, "hydra.run.dir=outputs/single/w")
        found = list(keys(weights / "outputs/single/w" / MODEL))
        cases = [(words, key, value) for words, key in found for value in (*VALUES, "")]  # "": taken away
        self.random.shuffle(cases)
        for words, key, value in cases[:count]:
            if self.out_of_time():
                return
            if self.runs(words):
                self.configuration(words, key, value)
            else:  # it needs another data set than the small one
                self.counts["configurations: left out"] += 1

    def runs(self, words: tuple[str, ...]) -> bool:
        """Whether a choice runs as it is, before any value is made a bad one."""
        if words not in self._runs:
            remember_defaults(*words)
            place = self.place()
            self._runs[words] = run(place, *words).code == 0
            shutil.rmtree(place)
        return self._runs[words]

    def configuration(self, words: tuple[str, ...], key: str, value: str) -> None:
        place = self.place()
        words = (*words, f"{key}={value}" if value else f"~{key}")
        name = key.removesuffix(".name").split(".")[-1]  # a part is known by its name
        ending = run(place, *words)
        self.check_manners(ending, words)
        kind = {0: "accepted", 2: "refused"}.get(ending.code, "ended otherwise")
        self.counts[f"configurations: {'went on, told to stop' if ending.told else kind}"] += 1
        if ending.code == 2:
            self.check(name in ending.err, "the key is named", (words, ending.err))
            self.check(len(ending.err.splitlines()) == 1, "one line", (words, ending.err))
        elif ending.code == 1:
            named = name in ending.err or "finite" in ending.err or "guess" in ending.err
            self.check(named, "the key is named, or the run diverged", (words, ending.err))
        written = [path for path in place.iterdir() if path.name not in (".out", ".err")]
        expected = {"outputs"} | ({value} if key == "output_root" else set())
        self.check({path.name for path in written} <= expected, "no file outside output_root", (words, written))
        self.check(ending.code == 0 or ending.told or not completed(place), "a refused run is not complete", words)
        shutil.rmtree(place)

    # Damaged files

    def damages(self, count: int) -> None:
        calm = self.place()
        words = (*TINY, "trainer.epochs=3")
        self.needed(calm, *words)
        cut_short = self.interrupted(words)
        for number in range(count):
            if self.out_of_time():
                return
            self.damage(words, calm, (calm, cut_short)[number % 2])

    def interrupted(self, words: tuple[str, ...]) -> Path:
        """A run that was killed once it had two checkpoints."""
        place = self.place()
        child = start(place, *words)
        while not list(place.glob(f"outputs/*/*/{PREVIOUS_CHECKPOINT}")):
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return place

    def damage(self, words: tuple[str, ...], calm: Path, source: Path) -> None:
        place = self.place()
        shutil.copytree(source / "outputs", place / "outputs")
        files = [path for path in place.glob("outputs/*/*/*") if path.name in PIECES]
        file = self.random.choice(files)
        how = damaged(file, self.random)
        case = f"{(source is calm and 'completed') or 'killed'} run, {file.name} {how}"
        ending = run(place, *words)
        self.check_manners(ending, case)
        equal = ending.code == 0 and results(place) == results(calm)
        refused = ending.code != 0 and file.name in ending.err
        self.check(equal or refused, "bit-equal or refused", (case, ending.code, ending.err[-300:]))
        self.counts[f"damaged files: {'bit-equal' if equal else 'refused'}"] += 1
        shutil.rmtree(place)

    # Kills

    def kills(self, count: int) -> None:
        calm = self.place()
        words = (*TINY, "trainer.epochs=8")
        began = time.monotonic()
        self.needed(calm, *words)
        duration = time.monotonic() - began
        done = 0
        while done < count and not self.out_of_time():
            done += self.killed(words, calm, duration)

    def killed(self, words: tuple[str, ...], calm: Path, duration: float) -> int:
        """Kill one run up to three times, complete it, and say how many kills met it alive."""
        place, kills = self.place(), 0
        for _ in range(3):
            child = start(place, *words)
            time.sleep(self.random.uniform(0, duration))
            os.kill(child, signal.SIGKILL)
            kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        ending = run(place, *words)
        self.check_manners(ending, "after kills")
        equal = ending.code == 0 and results(place) == results(calm)
        self.check(equal, "bit-equal after kills", (kills, ending.code, ending.err[-300:]))
        self.counts["kills: bit-equal at the end"] += kills if equal else 0
        shutil.rmtree(place)
        return kills


def keys(weights: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every key of every file of every group, with the words that choose the file; then the keys beside the groups."""
    for group in GROUPS:
        for file in sorted((config_directory() / group).glob("*.yaml")):
            if group == "dataset" and file.stem not in OFFLINE:
                continue
            choice = (f"{group}={file.stem}", *((f"init.path={weights}",) if file.stem == "checkpoint" else ()))
            with initialize_config_dir(str(config_directory()), version_base="1.3"):
                node = plain_config(compose("config", list(choice)))[group]
            found = [key for key, _ in leaves(node, f"{group}.") if "._" not in key]
            # What TINY sets of another option of the group, this one may not have.
            base = [word for word in TINY if not word.startswith(f"{group}.") or word.partition("=")[0] in found]
            words = (*base, *choice, *SMALLEST.get(file.stem, ()))
            yield from ((words, key) for key in found)
    yield from ((TINY, key) for key in TOP_LEVEL)


def remember_defaults(*words: str) -> None:
    """Find here what these words leave at its default: the forked processes then know it."""
    with initialize_config_dir(str(config_directory()), version_base="1.3"):
        cfg = compose("config", list(words), return_hydra_config=True)
        identity_of(cfg, cfg.hydra)


def warm_up() -> None:
    """Import what every run imports, once, and leave it out of the forked processes' garbage collection."""
    for name in WARM:
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)
    register_resolvers()
    remember_defaults(*TINY)
    gc.freeze()


def start(place: Path, *words: str) -> int:
    """cmr-run in a forked process; its id."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.chdir(place)
        for descriptor, name in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.argv = ["cmr-run", *words]
        cmr_run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(place: Path, *words: str) -> Ending:
    """cmr-run to its end; told to stop, and at last killed, if it goes on for too long."""
    child, signals = start(place, *words), [signal.SIGTERM, signal.SIGKILL]
    told, slept, spent, looked = False, 0.0, 0.0, time.monotonic()
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            out, err = ((place / name).read_text(errors="replace") for name in (".out", ".err"))
            return Ending(code if code >= 0 else 128 - code, out, err, told)
        sleeping, seconds = _looked_at(child)
        before, looked = looked, time.monotonic()
        slept += min(looked - before, LONGEST_LOOK) if sleeping else 0.0
        if seconds - spent > SECONDS or slept > HUNG_SECONDS:
            os.kill(child, signals.pop(0))
            told, slept, spent = True, 0.0, seconds
        time.sleep(0.005)


def _looked_at(process: int) -> tuple[bool, float]:
    """Whether a process sleeps, and the seconds it has computed: a busy machine makes no difference to either."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return fields[0] == "S", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def damaged(file: Path, rng: random.Random) -> str:
    """Damage the file in one way, and say which."""
    blob = bytearray(file.read_bytes())
    at = rng.randrange(len(blob)) if blob else 0
    how = rng.choice(("bit", "bit", "zeros", "cut", "deleted", "garbage", "longer"))
    if how == "bit" and blob:
        blob[at] ^= 1 << rng.randrange(8)
    elif how == "zeros":
        end = min(len(blob), at + rng.randrange(1, 256))
        if not any(blob[at:end]):
            at, end = 0, 4
        blob[at:end] = bytes(end - at)
    elif how == "cut":
        del blob[at:]
    elif how == "garbage":
        blob = bytearray(rng.randbytes(rng.randrange(1, 4096)))
    elif how == "longer":
        blob += rng.randbytes(rng.randrange(1, 64))
    file.unlink() if how == "deleted" else file.write_bytes(blob)
    return f"{how} at {at}"


def completed(place: Path) -> bool:
    return any(json.loads(path.read_text())["status"] == "completed" for path in place.glob(f"outputs/*/*/{RUN_FILE}"))


def results(place: Path) -> dict[str, object]:
    """What equal runs have in common: their tables, times aside, and their weights."""
    (directory,) = (path.parent for path in place.glob(f"outputs/*/*/{RUN_FILE}"))
    rows = {name: list(csv.DictReader(io.StringIO((directory / name).read_text()))) for name in TABLES}
    tables = {
        name: [{key: cell for key, cell in row.items() if key not in TIME_COLUMNS} for row in found]
        for name, found in rows.items()
    }
    return {**tables, MODEL: (directory / MODEL).read_bytes()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="100 kills, 1,000 damaged files, then all configurations")
    parser.add_argument("--configurations", type=int, metavar="N", default=40)
    parser.add_argument("--damages", type=int, metavar="N", default=40)
    parser.add_argument("--kills", type=int, metavar="N", default=6)
    parser.add_argument("--only", choices=("configurations", "damages", "kills"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=7200.0, help="start no further case after so many seconds")
    options = parser.parse_args()
    counts = {"kills": options.kills, "damages": options.damages, "configurations": options.configurations}
    if options.full:  # what has no end comes last
        counts = {"kills": 100, "damages": 1000, "configurations": None}
    warm_up()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cmr-fuzz-") as root:
        fuzzer = Fuzzer(Path(root), options.seed, began + options.seconds)
        for kind, count in counts.items():
            if options.only in (None, kind):
                getattr(fuzzer, kind)(count)
                fuzzer.say_counts()
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s, {len(fuzzer.broken)} rules broken")
    return min(len(fuzzer.broken), 1)


if __name__ == "__main__":
    sys.exit(main())
