"""Paper against measured: every value and shape the paper reports, beside ours, for runs in the paper's setting."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cmr_runner.paper.facts import (
    BASELINES,
    COMMANDS,
    KAPPA_STRESS,
    RISE_AFTER,
    STRESS_VALUES,
    TITLES,
    PaperValue,
)
from cmr_runner.paper.settings import (
    baseline_settings,
    paper_group,
    paper_setting,
    stress_settings,
)
from cmr_runner.paper.verdicts import (
    ACCURACY_TOLERANCE,
    FACTOR_TOLERANCE,
    NOT_RUN,
    Verdict,
    shape_verdict,
    value_verdict,
)
from cmr_runner.results import numerals
from cmr_runner.results.differences import paired_differences
from cmr_runner.results.grouping import Group, Setting
from cmr_runner.results.methods import method_label
from cmr_runner.results.quantities import ACCURACY, KAPPA_GRAM_MEDIAN, KAPPA_GRAM_P90, Quantity
from cmr_runner.results.reading import Run
from cmr_runner.results.statistics import LEAST_SEEDS, centre, mean, t_interval

# Of a measured factor: whether the claim holds, and whether at least its direction does.
Holds = Callable[[float], tuple[bool, bool]]
NO_VERDICT = Verdict(NOT_RUN)
COMPARISON_HEADER = ("claim", "paper", "measured", "95 % interval", "seeds", "verdict")


@dataclass(frozen=True)
class Row:
    claim: str
    paper: str
    measured: str = "–"
    interval: str = "–"
    n: int = 0
    verdict: Verdict = NO_VERDICT


@dataclass(frozen=True)
class Comparison:
    """The rows of one of the paper's experiments, and from which runs; no rows where none are in its setting."""

    title: str
    command: str
    source: str
    rows: list[Row]


def reproduction(runs: Sequence[Run]) -> list[Comparison]:
    stress = paper_setting(stress_settings(runs), KAPPA_STRESS)
    baselines = paper_setting(baseline_settings(runs), BASELINES)
    return [
        _comparison(KAPPA_STRESS, stress, _stress_rows),
        _comparison(BASELINES, baselines, _baseline_rows),
    ]


def _comparison(experiment: str, setting: Setting | None, rows: Callable[[Setting], list[Row]]) -> Comparison:
    found = rows(setting) if setting else []
    return Comparison(TITLES[experiment], COMMANDS[experiment], setting.title if setting else "", found)


def _stress_rows(setting: Setting) -> list[Row]:
    vanilla, cmr = paper_group(setting, "none"), paper_group(setting, "cmr")
    return [
        _value_row(fact, method, group, _agrees(fact, vanilla, cmr))
        for fact in STRESS_VALUES
        for method, group in (("none", vanilla), ("cmr", cmr))
    ]


def _value_row(fact: PaperValue, method: str, group: Group | None, agrees: bool | None) -> Row:
    quantity, paper = fact.quantity, fact.cmr if method == "cmr" else fact.vanilla
    values = group.final(quantity) if group else []
    claim, said = f"{quantity.label}, {method_label(method)}", f"≈ {numerals.number(paper, 2)}"
    if not values:
        return Row(claim, said)
    verdict = value_verdict(paper, values, log=quantity.log, agrees=agrees)
    middle, bounds = centre(values, quantity.log), t_interval(values, quantity.log)
    return Row(claim, said, numerals.number(middle), numerals.interval(*bounds), len(values), verdict)


def _agrees(fact: PaperValue, vanilla: Group | None, cmr: Group | None) -> bool | None:
    ours = [group.final(fact.quantity) if group else [] for group in (vanilla, cmr)]
    if not all(ours):
        return None
    low, high = (centre(values, fact.quantity.log) for values in ours)
    return (high > low) == (fact.cmr > fact.vanilla)


def _baseline_rows(setting: Setting) -> list[Row]:
    vanilla, cmr = paper_group(setting, "none"), paper_group(setting, "cmr")
    rows = [_comparable_row(setting.groups), _slightly_over_row(vanilla, cmr)]
    for quantity in (KAPPA_GRAM_MEDIAN, KAPPA_GRAM_P90):
        rows += [_rise_row(quantity, vanilla), _flat_row(quantity, vanilla, cmr), _low_row(quantity, vanilla, cmr)]
    return rows


def _comparable_row(groups: Sequence[Group]) -> Row:
    claim = f"accuracies are comparable (spread of means ≤ {ACCURACY_TOLERANCE:g} points)"
    means = [mean(values) for group in groups if (values := group.final(ACCURACY))]
    if len(means) < 2:
        return Row(claim, "comparable")
    spread = max(means) - min(means)
    verdict = shape_verdict(spread <= ACCURACY_TOLERANCE, False, f"over {len(means)} methods")
    return Row(claim, "comparable", f"{spread:.2f} points", "–", min(group.n for group in groups), verdict)


def _slightly_over_row(vanilla: Group | None, cmr: Group | None) -> Row:
    claim = f"CMR's accuracy slightly over vanilla's (by up to {ACCURACY_TOLERANCE:g} points)"
    if not (vanilla and cmr and vanilla.final(ACCURACY) and cmr.final(ACCURACY)):
        return Row(claim, "slightly over")
    gain = mean(cmr.final(ACCURACY)) - mean(vanilla.final(ACCURACY))
    paired = paired_differences(cmr, vanilla, ACCURACY)
    low, high = t_interval(paired, log=False)
    apart = len(paired) >= LEAST_SEEDS and low > 0
    basis = "" if apart else "the interval does not exclude 0: these seeds do not tell the two apart"
    verdict = shape_verdict(apart and gain <= ACCURACY_TOLERANCE, gain > 0, basis)
    return Row(claim, "slightly over", f"{gain:+.2f} points", numerals.interval(low, high), len(paired), verdict)


def _rise_row(quantity: Quantity, vanilla: Group | None) -> Row:
    claim = f"vanilla's {quantity.label} rises sharply after epoch {RISE_AFTER} (by a factor ≥ {FACTOR_TOLERANCE:g})"
    growth = [late[-1] / late[0] for late in _late(quantity, vanilla)]
    return _factor_row(claim, "rises sharply", growth, lambda x: (x >= FACTOR_TOLERANCE, x > 1))


def _flat_row(quantity: Quantity, vanilla: Group | None, cmr: Group | None) -> Row:
    claim = f"CMR's {quantity.label} stays flat after epoch {RISE_AFTER} (largest ÷ smallest ≤ {FACTOR_TOLERANCE:g})"
    ranges, other = ([late.max() / late.min() for late in _late(quantity, g)] for g in (cmr, vanilla))
    against = centre(other, log=True)
    return _factor_row(claim, "stays flat", ranges, lambda x: (x <= FACTOR_TOLERANCE, x < against))


def _low_row(quantity: Quantity, vanilla: Group | None, cmr: Group | None) -> Row:
    claim = f"CMR's {quantity.label} stays low (vanilla's ÷ CMR's at the end ≥ {FACTOR_TOLERANCE:g})"
    above, below = (group.final(quantity) if group else [] for group in (vanilla, cmr))
    if not (above and below):
        return Row(claim, "stays low")
    ratio = centre(above, log=True) / centre(below, log=True)
    verdict = shape_verdict(ratio >= FACTOR_TOLERANCE, ratio > 1)
    return Row(claim, "stays low", f"× {numerals.number(ratio)}", "–", min(len(above), len(below)), verdict)


def _factor_row(claim: str, paper: str, factors: Sequence[float], holds: Holds) -> Row:
    factors = [float(factor) for factor in factors if math.isfinite(factor) and factor > 0]
    if not factors:
        return Row(claim, paper)
    middle = centre(factors, log=True)
    bounds = numerals.interval(*t_interval(factors, log=True))
    return Row(claim, paper, f"× {numerals.number(middle)}", bounds, len(factors), shape_verdict(*holds(middle)))


def _late(quantity: Quantity, group: Group | None) -> list[np.ndarray]:
    """The quantity of each complete run from the epoch of the paper's rise on, where training goes beyond it."""
    late = [quantity.values(run)[run.metrics["epoch"] >= RISE_AFTER] for run in (group.complete if group else ())]
    return [values for values in late if len(values) > 1 and np.isfinite(values).all() and (values > 0).all()]
