"""What a method gains over no regulariser in the same setting, seed by seed."""

from collections.abc import Iterable

from cmr_runner.results import numerals
from cmr_runner.results.grouping import Group, Setting, headline
from cmr_runner.results.quantities import Quantity
from cmr_runner.results.statistics import mean, t_interval

REFERENCE = "none"  # the method that the others are compared with
DIFFERENCE_HEADER = ("group", "quantity", "difference", "95 % interval", "seeds")
DIFFERENCE_NOTE = (
    "Difference to no regulariser in the same setting, paired by seed, with Student's 95 % interval: an interval that "
    "holds 0 does not tell the two apart."
)


def paired_differences(group: Group, reference: Group, quantity: Quantity) -> list[float]:
    """The final value of each seed of the group less that of the same seed of the reference."""
    ours, theirs = ({r.seed: float(quantity.values(r)[-1]) for r in one.complete} for one in (group, reference))
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def difference_rows(settings: Iterable[Setting]) -> list[list[str]]:
    """One row per group that shares seeds with the only group without a regulariser of its setting."""
    rows = []
    for setting in settings:
        references = setting.of(REFERENCE)
        if len(references) != 1:
            continue
        quantity = headline(setting.groups)
        for group in setting.groups:
            found = paired_differences(group, references[0], quantity) if group is not references[0] else []
            if found:
                label = f"{group.label}, {setting.distinction}" if setting.distinction else group.label
                bounds = numerals.interval(*t_interval(found, log=False))
                rows.append([label, quantity.heading, f"{mean(found):+.3g}", bounds, str(len(found))])
    return rows
