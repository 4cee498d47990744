"""Which runs stand for the paper's two experiments."""

from collections.abc import Sequence

from cmr_runner.paper.facts import BASELINES, CMR_FIELDS, KAPPA_STRESS, SETTINGS
from cmr_runner.results.grouping import Group, Setting, settings
from cmr_runner.results.methods import PAPER_METHODS
from cmr_runner.results.reading import Run, value_text


def stress_settings(runs: Sequence[Run]) -> list[Setting]:
    """Experiment 1: its own experiment, or runs started one by one, where vanilla and CMR are both there."""
    own = [run for run in runs if run.experiment == KAPPA_STRESS or not run.in_experiment]
    return [s for s in settings(own) if s.init == "kappa_stress" and s.of("none") and s.of("cmr")]


def baseline_settings(runs: Sequence[Run]) -> list[Setting]:
    """Experiment 2: its own experiment; else wherever vanilla stands beside another of the paper's methods."""
    found = [
        setting
        for setting in settings([run for run in runs if run.method in PAPER_METHODS])
        if setting.init != "kappa_stress" and setting.of("none") and len(setting.groups) > 1
    ]
    own = [setting for setting in found if setting.experiment == BASELINES]
    return own or found


def departures(group: Group, fixed: dict[str, str]) -> list[str]:
    """Where a group differs from what the paper fixes, among the fields it has."""
    return [
        f"{key}={value_text(group.field(key))} (paper: {value})"
        for key, value in fixed.items()
        if group.field(key) is not None and value_text(group.field(key)) != value
    ]


def closest_setting(found: Sequence[Setting], experiment: str) -> Setting | None:
    """The setting that departs least from the paper's; of equals the one with most complete runs."""

    def rank(setting: Setting) -> tuple[int, int]:
        return len(departures(setting.groups[0], SETTINGS[experiment])), -sum(group.n for group in setting.groups)

    return min(found, key=rank, default=None)


def closest_group(setting: Setting, method: str) -> Group | None:
    """The method's group that departs least from the paper's CMR; of equals the one with most complete runs."""
    return min(setting.of(method), key=lambda group: (len(departures(group, CMR_FIELDS)), -group.n), default=None)
