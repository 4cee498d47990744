"""Which configurations are one run, and what its directory is called."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_process import call, record

from cmr_runner.commands.composition import config_directory
from cmr_runner.runs import identity
from cmr_runner.runs.identity import (
    INCIDENTAL,
    NAME_LENGTH,
    Revision,
    document,
    document_hash,
    leaves,
    readable_name,
    recorded_document,
    without_seed,
)

from .composition import composed

CONFIG = {
    "seed": 0,
    "threads": 1,
    "device": "auto",
    "output_root": "outputs",
    "force": False,
    "on_failure": "continue",
    "progress": "auto",
    "debug": False,
    "dataset": {"_target_": "mnist", "root": None, "mean": 0.1307},
    "regularizer": {"_target_": "cmr", "lam": 0.02, "K": 5},
    "trainer": {"epochs": 5, "clip_norm": 5.0},
}
CHOICES = {"regularizer": "cmr", "init": "kappa_stress", "dataset": "mnist", "experiment": None}


def with_value(path: str, value: object) -> dict:
    top, _, leaf = path.partition(".")
    return {**CONFIG, top: {**CONFIG[top], leaf: value} if leaf else value}


def hash_of(config: dict, choices: dict = CHOICES) -> str:
    return document_hash(document(choices, config))


def name_of(config: dict, choices: dict = CHOICES) -> str:
    return readable_name(choices, config, CHOICES, CONFIG)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("threads", 2),
        ("device", "cpu"),
        ("output_root", "/elsewhere"),
        ("force", True),
        ("on_failure", "stop"),
        ("progress", "none"),
        ("debug", True),
        ("name", "a try"),
        ("logger", {"_target_": "tracker", "project": "mine"}),
        ("dry", True),
        ("dataset.root", "/data"),
        ("regularizer.K", 5.0),
        ("regularizer._target_", "moved.to.CMR"),
        ("regularizer._partial_", True),
        ("regularizer.layers", {"split": None, "heads": False}),  # options that older runs did not have
    ],
)
def test_what_cannot_change_a_result_does_not_change_the_run(path: str, value: object) -> None:
    assert hash_of(with_value(path, value)) == hash_of(CONFIG)
    assert name_of(with_value(path, value)) == name_of(CONFIG) == "cmr-kappa_stress-seed0"


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("seed", 1, "seed1"),
        ("regularizer.lam", 0.1, "lam0.1"),
        ("regularizer.K", 6, "K6"),
        ("dataset.mean", 0.5, "mean0.5"),
        ("trainer.epochs", 20, "epochs20"),
        ("trainer.clip_norm", float("inf"), "clip_norminf"),
        ("regularizer.layers", {"split": {"*.qkv.weight": 1}}, "weight1"),
    ],
)
def test_what_decides_the_result_changes_hash_and_name(path: str, value: object, part: str) -> None:
    assert hash_of(with_value(path, value)) != hash_of(CONFIG)
    assert part in name_of(with_value(path, value)).split("-")


def test_the_order_of_keys_does_not_matter() -> None:
    backwards = {key: CONFIG[key] for key in reversed(CONFIG)}
    assert hash_of(backwards) == hash_of(CONFIG)


def test_a_choice_other_than_the_default_is_named() -> None:
    assert name_of(CONFIG, {**CHOICES, "dataset": "digits"}) == "cmr-kappa_stress-digits-seed0"


@given(st.dictionaries(st.text(min_size=1, max_size=40), st.text(max_size=80) | st.floats() | st.none(), max_size=8))
def test_names_are_bounded_and_safe_for_any_value(extra: dict) -> None:
    config = {**CONFIG, "regularizer": {**CONFIG["regularizer"], **extra}}
    name = name_of(config)
    assert len(name) <= NAME_LENGTH
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")
    assert name.endswith("seed0")
    assert len(hash_of(config)) == 8


def test_a_code_path_counts_nowhere_and_positional_arguments_do() -> None:
    def with_parts(path: str, argument: int) -> dict:
        return {**CONFIG, "model": {"parts": [{"_target_": path, "width": 3}], "_args_": [argument]}}

    assert hash_of(with_parts("here.Part", 1)) == hash_of(with_parts("there.Part", 1))
    assert hash_of(with_parts("here.Part", 1)) != hash_of(with_parts("here.Part", 2))


@pytest.mark.parametrize(
    ("group", "option", "same"),
    [
        ("regularizer", "cmr_cond", False),
        ("layers@regularizer.layers", "mine", False),
        ("layers@regularizer.layers", "weights", True),
        ("experiment", "rivals", True),
        ("logger", "csv", True),
        ("logger", None, True),
    ],
)
def test_the_choice_of_a_group_is_part_of_a_run(group: str, option: str | None, same: bool) -> None:
    assert (hash_of(CONFIG, {**CHOICES, group: option}) == hash_of(CONFIG)) is same


def with_engine(engine: object) -> dict:
    return with_value("regularizer.engine", engine)


def test_a_part_written_as_its_name_or_as_a_node_at_the_old_values_is_one_run() -> None:
    node = {"name": "auto", "steps": None, "probes": None, "refresh": None}
    for engine in ({"name": "auto"}, node, {"_target_": "Engine", **node}):
        assert hash_of(with_engine(engine)) == hash_of(with_engine("auto"))
        assert readable_name(CHOICES, with_engine(engine), CHOICES, with_engine("auto")) == "cmr-kappa_stress-seed0"
    assert hash_of(with_engine({**node, "steps": 32})) != hash_of(with_engine("auto"))
    assert (
        hash_of(with_engine({**node, "name": "exact"})) == hash_of(with_engine("exact")) != hash_of(with_engine("auto"))
    )


def test_an_option_of_ones_own_is_added_by_naming_the_value_of_older_runs() -> None:
    def mine(**more: object) -> dict:
        return {**CONFIG, "model": {"_target_": "mine.Net", "width": 8, **more}}

    added = {"dropout": 0.0}
    assert hash_of(mine(dropout=0, _added_=added)) == hash_of(mine())
    assert hash_of(mine(dropout=0.1, _added_=added)) != hash_of(mine())
    assert hash_of(mine(dropout=0.1, _added_=added)) == hash_of(mine(dropout=0.1))


def test_a_user_adds_an_option_to_a_model_of_their_own_and_keeps_their_runs(tmp_path: Path) -> None:
    conf = tmp_path / "conf" / "model"
    conf.mkdir(parents=True)
    file = conf / "mine.yaml"
    file.write_text("_target_: cmr_runner.models.MLP\n_partial_: true\ndepth: 2\nwidth: 8\nactivation: tanh\n")
    words = ("--config-dir", str(conf.parent), "model=mine", "model.depth=2", "trainer.epochs=1")
    first = call(tmp_path, *words)
    assert first.returncode == 0, first.stderr
    file.write_text(f"{file.read_text()}bias: true\n_added_:\n  bias: true\n")
    assert "completed before" in call(tmp_path, *words).stdout
    other = call(tmp_path, *words, "model.bias=false")
    assert other.returncode == 0, other.stderr
    assert "completed before" not in other.stdout


def test_a_revision_moves_the_runs_it_applies_to_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, auto = with_engine("exact"), with_engine({"name": "auto", "steps": 32})
    monkeypatch.setattr(identity, "REVISIONS", ())
    before = hash_of(exact), hash_of(auto)
    change = Revision("auto adds in another order", {"regularizer": "cmr", "regularizer.engine": "auto"})
    monkeypatch.setattr(identity, "REVISIONS", (change,))
    assert hash_of(exact) == before[0]
    assert hash_of(auto) != before[1]
    assert document(CHOICES, auto)["revision"] == 1
    assert document_hash(document(CHOICES, auto, revision=0)) == before[1]
    assert "revision" not in document({**CHOICES, "regularizer": "cmr_cond"}, auto)


def test_a_run_from_before_a_revision_is_made_again_and_keeps_its_own_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("trainer.epochs=1", "regularizer=none")
    assert call(tmp_path, *words).returncode == 0
    monkeypatch.setattr(identity, "REVISIONS", (Revision("another rounding", {"regularizer": "none"}),))
    again = call(tmp_path, *words)
    assert again.returncode == 0, again.stderr
    assert "completed before" not in again.stdout
    records = [record(path.parent) for path in sorted(tmp_path.glob("outputs/single/*/run.json"))]
    assert sorted(found["identity"].get("revision", 0) for found in records) == [0, 1]
    for found in records:
        assert document_hash(recorded_document(found)) == found["identity"]["hash"]
    assert "completed before" in call(tmp_path, *words).stdout


def test_the_seeds_of_a_configuration_share_all_but_the_seed() -> None:
    def seeded(seed: int, data: int) -> dict:
        return without_seed(document(CHOICES, {**CONFIG, "seed": seed, "dataset": {"seed": data}}))

    assert seeded(0, 0) == seeded(1, 1)
    assert seeded(0, 0) != seeded(0, 1)


def options() -> Iterator[tuple[str, str]]:
    for folder in sorted(config_directory().iterdir()):
        if folder.is_dir() and folder.name not in {"hydra", "experiment", "layers"} | INCIDENTAL:
            yield from ((folder.name, path.stem) for path in sorted(folder.glob("*.yaml")))


def altered(config: dict[str, Any], path: str) -> dict[str, Any]:
    """`config` with another value at the dotted key."""
    key, _, rest = path.partition(".")
    return {**config, key: altered(config[key], rest) if rest else another(config[key])}


def another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if abs(value) >= 1 else value * 1.0000001 + 1e-30
    return [*value, "x"] if isinstance(value, list) else f"{value}x"


@pytest.mark.parametrize(("group", "option"), list(options()))
def test_changing_any_value_of_any_file_changes_the_run(group: str, option: str) -> None:
    """Any value that a user can set; and the choice of the file itself."""
    needed = ("init.path=weights.pt",) if option == "checkpoint" else ()
    choices, config = composed(f"{group}={option}", *needed)
    assert choices[group] == option
    seen = {document_hash(document(choices, config)): ""}
    for path, _ in leaves(config):
        if any(part.startswith("_") for part in path.split(".")) or {path, path.split(".")[0]} & INCIDENTAL:
            continue
        changed = document_hash(document(choices, altered(config, path)))
        assert changed not in seen, (path, seen[changed])
        seen[changed] = path
    assert document_hash(document({**choices, group: "another"}, config)) not in seen
