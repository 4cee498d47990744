"""Which runs stand for the paper's two experiments."""

from collections.abc import Sequence

from cmr_runner.paper.facts import BASELINES, CMR_FIELDS, KAPPA_STRESS, SETTINGS
from cmr_runner.results.grouping import Group, Setting, settings
from cmr_runner.results.methods import PAPER_METHODS
from cmr_runner.results.reading import Run, value_text


def stress_settings(runs: Sequence[Run]) -> list[Setting]:
    """Experiment 1: its own experiment, or a user's own runs, where vanilla and CMR are both there."""
    own = [run for run in runs if run.choices.get("experiment", "null") in ("null", KAPPA_STRESS)]
    return [s for s in settings(own) if s.init == "kappa_stress" and s.of("none") and s.of("cmr")]


def beyond_stress(runs: Sequence[Run]) -> list[Run]:
    """The runs that are not those of Experiment 1."""
    stressed = {id(run) for setting in stress_settings(runs) for run in setting.runs}
    return [run for run in runs if id(run) not in stressed]


def baseline_settings(runs: Sequence[Run]) -> list[Setting]:
    """Experiment 2: its own experiment; else wherever vanilla stands beside another of the paper's methods."""
    found = [
        setting
        for setting in settings([run for run in runs if run.method in PAPER_METHODS])
        if setting.init != "kappa_stress" and setting.of("none") and len(setting.groups) > 1
    ]
    own = [setting for setting in found if setting.experiment == BASELINES]
    return own or found


def departs(group: Group, fixed: dict[str, str]) -> bool:
    """Whether a group differs from what the paper fixes, in a field that it has."""
    return any(group.field(key) is not None and value_text(group.field(key)) != value for key, value in fixed.items())


def paper_setting(found: Sequence[Setting], experiment: str) -> Setting | None:
    """The setting that is the paper's own; of several the one with most complete runs."""
    own = [setting for setting in found if not departs(setting.groups[0], SETTINGS[experiment])]
    return max(own, key=lambda setting: sum(group.n for group in setting.groups), default=None)


def paper_group(setting: Setting | None, method: str) -> Group | None:
    """The method's group with the paper's values; of several the one with most complete runs."""
    own = [group for group in (setting.of(method) if setting else ()) if not departs(group, CMR_FIELDS)]
    return max(own, key=lambda group: group.n, default=None)
