"""The committed runs lie under the identities of their recorded configurations, and commands find them there."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_process import call

from cmr_runner.results.reading import Run
from cmr_runner.runs.columns import TABLES
from cmr_runner.runs.identity import ADDED, document, document_hash, recorded_document
from cmr_runner.runs.integrity import file_damage, record_damage

from .composition import composed

OUTPUTS = Path(__file__).parents[2] / "outputs"
COMMITTED = sorted(path for part in ("paper", "beyond") for path in (OUTPUTS / part).glob("*/*/run.json"))


def test_every_committed_run_lies_under_the_hash_of_its_recorded_configuration() -> None:
    assert len(COMMITTED) >= 163
    for path in COMMITTED:
        found = json.loads(path.read_text())
        own = found["identity"]
        assert path.parent.name == f"{own['name']}-{document_hash(recorded_document(found))}"
        assert own["hash"] == document_hash(recorded_document(found))
        moved = {**found, "config": with_moved_classes(found["config"])}
        assert document_hash(recorded_document(moved)) == own["hash"]
        assert Run(path.parent, moved).recipe == Run(path.parent, found).recipe


def test_every_committed_run_has_the_bytes_it_was_committed_with() -> None:
    for path in COMMITTED:
        found = json.loads(path.read_text())
        assert record_damage(found) == ""
        assert found["files"].keys() >= set(TABLES)
        assert file_damage(path.parent, found) == []


def with_moved_classes(node: Mapping[str, Any]) -> dict[str, Any]:
    moved = {key: with_moved_classes(value) if isinstance(value, Mapping) else value for key, value in node.items()}
    return moved | ({"_target_": f"elsewhere.{node['_target_']}"} if "_target_" in node else {})


def test_an_option_added_since_a_committed_run_is_declared() -> None:
    """What the run's choices compose to today adds no key to the run's: an option that came later is at its old value.

    Nor does it lack one, but for options at another value than the old one, which the run's experiment set.
    """
    for path in COMMITTED:
        found = json.loads(path.read_text())
        choices = {group: choice for group, choice in found["choices"].items() if "@" not in group}
        words = sorted(f"{group}={choice}" for group, choice in choices.items() if choice and group != "experiment")
        now = document(*composed(*words)).keys() - {"revision"}
        then = recorded_document(found).keys() - {"revision"}
        assert now <= then <= now | ADDED.keys(), path.parent


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kappa_stress/none-kappa_stress-seed0", ("experiment=kappa_stress", "regularizer=none")),
        ("rivals/l2-kappa_stress-seed1", ("experiment=rivals", "regularizer=l2", "seed=1")),
        (
            "ablation_batch/none-kappa_stress-batch_size128-seed0",
            ("experiment=ablation_batch", "regularizer=none", "trainer.batch_size=128"),
        ),
    ],
)
def test_the_command_finds_its_committed_run(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (committed,) = (path.parent for path in COMMITTED if str(path.parent).rpartition("-")[0].endswith(name))
    place = Path("results", committed.parent.name, committed.name)
    shutil.copytree(committed, tmp_path / place)
    done = call(tmp_path, *words, "output_root=results", base=())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / place}: completed before; force=true runs it again\n"
