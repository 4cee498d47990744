"""Which configurations are one run, and what its directory is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmr_runner.runs.identity import NAME_LENGTH, config_hash, deciding_config, readable_name

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


def hash_of(config: dict) -> str:
    return config_hash(deciding_config(config))


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
        ("dataset.root", "/data"),
        ("regularizer.K", 5.0),
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
