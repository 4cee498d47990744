"""scripts/fuzz.py: a sample of it holds, and it sees a rule that is broken."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from run_process import environment

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_sample_of_bad_values_damaged_files_and_kills_breaks_no_rule() -> None:
    counts = ("--configurations", "8", "--damages", "6", "--kills", "1")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *counts], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("0 rules broken\n")
    assert sum(int(line.split()[0]) for line in done.stdout.splitlines()[:-1]) >= 8 + 6 + 1


def test_a_full_run_has_every_key_of_every_group(fuzz: ModuleType) -> None:
    found = {key for _, key in fuzz.keys(Path("model.pt"))}
    assert found >= {"regularizer.lam", "regularizer.layers.min_side", "model.heads", "init.path", "seed"}
    cases = len(list(fuzz.keys(Path("model.pt")))) * (len(fuzz.VALUES) + 1)
    assert cases >= 1500


def test_broken_rules_are_seen(fuzz: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fuzzer = fuzz.Fuzzer(tmp_path, 0, time.monotonic() + 60)
    fuzzer.check_manners(fuzz.Ending(70, "", "Traceback (most recent call last)", told=False), ("a", "case"))
    assert [rule.split(" is")[0].partition(":")[0] for rule in fuzzer.broken] == ["no traceback", "exit code 70"]
    assert "('a', 'case')" in capsys.readouterr().err


def test_every_way_to_damage_a_file_changes_it(fuzz: ModuleType, tmp_path: Path) -> None:
    rng, seen = fuzz.random.Random(0), set()
    for _ in range(100):
        file = tmp_path / "file"
        file.write_bytes(bytes(range(1, 200)) * 3)
        before = file.read_bytes()
        seen.add(fuzz.damaged(file, rng).split()[0])
        assert not file.exists() or file.read_bytes() != before
    assert seen == {"bit", "zeros", "cut", "deleted", "garbage", "longer"}
