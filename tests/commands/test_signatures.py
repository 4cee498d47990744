"""A YAML's values are checked against the annotations of what it builds, before anything is built or written."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from run_process import call

from cmr_runner.checks import ArgumentError
from cmr_runner.commands.signatures import check_arguments, check_value
from cmr_runner.regularizers import LayerRule

NAN, INF = float("nan"), float("inf")
NODE = {"_target_": "somewhere.Thing"}
FITS: list[tuple[Any, list[Any], list[Any]]] = [
    (bool, [True, False], [1, "no", "abc", NAN, [1, 2], None]),
    (int, [0, -3], [True, 1.0, "1", None, 2**63, [1]]),
    (float, [0, 1.5, INF, -2], [True, NAN, "1", None, 10**400, [1.0], NODE]),
    (str, ["", "a"], [1, None, True, ["a"], NODE]),
    (Literal["a", 2], ["a", 2], ["b", 2.5, None, True]),
    (int | None, [None, 4], ["null", 1.5]),
    (Sequence[int], [[], [1, 2]], [3, "12", [1.5], ["1"], None]),
    (tuple[float, float], [[0.9, 1]], [[0.9], [0.9, "b"], 0.9]),
    (tuple[float | torch.Tensor, float | torch.Tensor], [[0.9, 0.99]], [[0.9], ["a", 0.9]]),
    (list[str], [["a"]], ["a", [1]]),
    (str | os.PathLike[str] | None, [None, "a"], [7, ["a"]]),
    (LayerRule | None, [None, NODE], [5, "all", [], {"include": []}]),
    (str | LayerRule, ["exact", NODE], [5, None]),
    (Any, [1, "a", None, [NAN]], []),
]


@pytest.mark.parametrize(("annotation", "good", "bad"), FITS, ids=[str(row[0]) for row in FITS])
def test_values_fit_their_annotation_or_are_refused(annotation: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check_value("key", value, annotation)
    for value in bad:
        with pytest.raises(ArgumentError, match=r"^key must be ") as error:
            check_value("key", value, annotation)
        assert "\n" not in str(error.value)


def test_options_that_are_unknown_given_or_missing_are_named() -> None:
    def target(model: object, *, size: int, lam: float = 0.1) -> None: ...

    check_arguments(target, {"size": 3}, ["model"])
    for options, message in (
        ({"size": 3, "lamda": 1}, r"lamda=1: no such key; .*target takes size, lam$"),
        ({"size": 3, "model": "m"}, "model=m: no such key"),
        ({}, "size must be given: size=…"),
        ({"size": "???"}, "size must be given: size=…"),
    ):
        with pytest.raises(ArgumentError, match=message):
            check_arguments(target, options, ["model"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *[
            (("model.bias=" + value,), "model.bias must be true or false, got ")
            for value in ("no", "abc", "nan", "null")
        ],
        (("model.bias=[1,2]",), "model.bias must be true or false, got [1, 2]"),
        (("optimizer.lr=null",), "optimizer.lr must be a number, got None"),
        (("optimizer=sgd", "optimizer.nesterov=abc"), "optimizer.nesterov must be true or false, got 'abc'"),
        (("optimizer=sgd", "optimizer.momentum=2"), "optimizer.momentum must be in [0, 1), got 2"),
        (("optimizer=muon", "optimizer.momentum=1e9"), "optimizer.momentum must be in [0, 1), got 1000000000.0"),
        (("model.width=99999999999999999999",), "model.width must be an integer of at most 64 bits, got 9999"),
        (("model.width=9999999999",), "model.width must be an integer in [1, 65536], got 9999999999"),
        (("init=prescribed_kappa", "init.kappa=1e300"), "init.kappa must be in [1, 10000000.0], got 1e+300"),
        (
            ("regularizer.layers=5",),
            "regularizer.layers must be a group of keys with a _target_ (LayerRule) or null, got 5",
        ),
        (("regularizer.layers.include=a",), "regularizer.layers.include must be a list of texts, got 'a'"),
        (("regularizer.engine.name=[]",), "regularizer.engine must be one of exact, "),
        (("regularizer.lam=nan",), "regularizer.lam must be a number, got nan"),
        (("dataset.train=1e3",), "dataset.train must be an integer, got 1000.0"),
        (("dataset.train=99999999999",), "dataset.train must be an integer in [1, 100000000], got 99999999999"),
        (("trainer.clip_norm=nan",), "trainer.clip_norm must be a number, got nan"),
        (("+regularizer.seed=3",), "regularizer.seed=3: no such key"),
        (("~model",), "model must be given: model=…"),
    ],
)
def test_nonsense_is_refused_by_its_key_and_nothing_is_written(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = call(tmp_path, *words, base=BASE)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.json"))


BASE = ("dataset=synthetic", "dataset.train=32", "dataset.test=32", "dataset.shape=[12]", "trainer.epochs=1")
