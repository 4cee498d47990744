"""The rules that give a run up."""

import math

import pytest

from cmr_runner.checks import ArgumentError
from cmr_runner.training.stopping import StopWhen


def reasons(rule: StopWhen, *rows: dict) -> list[str | None]:
    return [rule.reason({"epoch": epoch, **row}) for epoch, row in enumerate(rows)]


def accuracies(*values: float) -> list[dict]:
    return [{"val_accuracy": value} for value in values]


def test_patience_counts_the_epochs_since_the_best_validation_accuracy() -> None:
    said = reasons(StopWhen(patience=2), *accuracies(0.1, 0.5, 0.5, 0.6, 0.55, 0.6))
    assert said[:5] == [None] * 5
    assert said[5] == "stopped after epoch 5: no better validation accuracy than 60.00 % in epoch 3"


def test_what_was_there_before_training_counts_as_the_first_accuracy() -> None:
    assert reasons(StopWhen(patience=1), *accuracies(0.3, 0.2))[1] is not None


@pytest.mark.parametrize(
    ("rule", "column", "said"),
    [
        (StopWhen(kappa=100), "kappa_mean", "stopped after epoch 2: mean κ, 100.5, is over 100"),
        (StopWhen(loss=100), "train_loss", "stopped after epoch 2: training loss, 100.5, is over 100"),
    ],
)
def test_a_bound_holds_from_the_first_epoch_of_training_and_is_allowed_itself(
    rule: StopWhen, column: str, said: str
) -> None:
    rows = [{column: 1000.0}, {column: 100.0}, {column: 100.5}]
    assert reasons(rule, *rows) == [None, None, said]
    assert reasons(StopWhen(), *rows) == [None] * 3


def test_quantities_that_are_not_defined_cross_no_bound() -> None:
    rule = StopWhen(kappa=1, loss=1)
    assert reasons(rule, {}, {"kappa_mean": None, "train_loss": None}, {"kappa_mean": math.nan}) == [None] * 3


def test_a_restored_rule_counts_on_from_where_it_was() -> None:
    rows = accuracies(0.1, 0.5, 0.4, 0.4)
    first, second = StopWhen(patience=2), StopWhen(patience=2)
    reasons(first, *rows[:3])
    second.load_state_dict(first.state_dict())
    assert second.reason({"epoch": 3, **rows[3]}) is not None


@pytest.mark.parametrize(
    "wrong", [{"patience": 0}, {"patience": 1.5}, {"kappa": 0.5}, {"loss": 0.0}, {"loss": math.nan}]
)
def test_rules_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(ArgumentError, match=f"^{next(iter(wrong))} must be"):
        StopWhen(**wrong)
