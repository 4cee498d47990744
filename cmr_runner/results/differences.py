"""What a method gains over no regulariser in the same setting, seed by seed."""

from collections.abc import Iterable

from cmr_runner.results import numerals
from cmr_runner.results.grouping import Group, Setting, headline, settings
from cmr_runner.results.quantities import Quantity
from cmr_runner.results.reading import Run
from cmr_runner.results.statistics import mean, t_interval

REFERENCE = "none"  # the method that the others are compared with
DIFFERENCE_HEADER = ("group", "quantity", "difference", "95 % interval", "seeds")
DIFFERENCE_NOTE = (
    "Less no regulariser (vanilla) in the same setting, paired by seed, with Student's 95 % interval. An interval that "
    "contains 0 does not tell the two apart."
)


def paired_differences(group: Group, reference: Group, quantity: Quantity) -> list[float]:
    """The final value of each seed of the group less that of the same seed of the reference."""
    ours, theirs = ({r.seed: float(quantity.values(r)[-1]) for r in one.complete} for one in (group, reference))
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def differences(runs: Iterable[Run]) -> list[tuple[str, list[list[str]]]]:
    """For each setting with one group that has no regulariser: a row per group that shares seeds with it."""
    found = []
    for setting in settings(runs):
        references = setting.of(REFERENCE)
        if len(references) == 1 and (rows := _rows(setting, references[0])):
            found.append((setting.title, rows))
    return found


def _rows(setting: Setting, reference: Group) -> list[list[str]]:
    quantity = headline(setting.groups)
    rows = []
    for group in setting.groups:
        found = paired_differences(group, reference, quantity) if group is not reference else []
        if found:
            bounds = numerals.interval(*t_interval(found, log=False))
            rows.append([group.label, quantity.heading, f"{mean(found):+.3g}", bounds, str(len(found))])
    return rows
