"""Which runs belong together: seeds form a group, comparable groups form a setting.

Runs of one experiment that differ in the seed alone are a *group*. Groups that differ in the regulariser alone are a
*setting*: a figure never sets runs of two settings beside each other as if they were comparable.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cmr_runner.results.methods import Look, looks, method_label, method_rank
from cmr_runner.results.quantities import (
    ACCURACY,
    NATS,
    PERPLEXITY,
    TASK_MEAN,
    VAL_ACCURACY,
    VAL_NATS,
    VAL_TASK_MEAN,
    Quantity,
)
from cmr_runner.results.reading import Run, value_text
from cmr_runner.results.statistics import centre

PAPER_EXPERIMENTS = ("kappa_stress", "standard_baselines")
GRID_KEYS = ("regularizer.lam", "regularizer.rho_spec")  # rows and columns of a sweep's map
SYMBOLS = {"lam": "λ", "rho_spec": "ρ_spec", "alpha1": "α₁", "alpha2": "α₂", "beta": "β", "eps": "ε"}


@dataclass(frozen=True)
class Group:
    """Runs alike in everything but the seed."""

    runs: tuple[Run, ...]
    label: str
    look: Look

    @property
    def experiment(self) -> str:
        return self.runs[0].experiment

    @property
    def method(self) -> str:
        return self.runs[0].method

    @cached_property
    def complete(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.complete)

    @cached_property
    def partial(self) -> tuple[Run, ...]:
        """Runs that diverged, failed, were interrupted or are still going."""
        return tuple(run for run in self.runs if not run.complete)

    @property
    def n(self) -> int:
        return len(self.complete)

    @property
    def endings(self) -> dict[str, int]:
        """How many of the runs that are not complete ended in each way."""
        endings = [run.ending for run in self.partial]
        return {ending: endings.count(ending) for ending in sorted(set(endings))}

    def field(self, key: str) -> Any:
        return self.runs[0].fields.get(key)

    def finals(self, quantity: Quantity) -> list[float]:
        """The quantity after the last epoch of each complete run."""
        return [float(quantity.values(run)[-1]) for run in self.complete]

    def final(self, quantity: Quantity) -> list[float]:
        """The same, where it is finite."""
        return list(filter(math.isfinite, self.finals(quantity)))

    def has(self, *columns: str) -> bool:
        return any(all(column in run.metrics for column in columns) for run in self.runs)


def headline(groups: Iterable[Group]) -> Quantity:
    """What the task is judged by: the loss in nats where it is text, else the accuracy; of a stream of tasks its mean
    over the tasks."""
    several = tuple(groups)
    for quantity, mark in ((NATS, PERPLEXITY), (TASK_MEAN, TASK_MEAN)):
        if any(group.has(mark.column) for group in several):
            return quantity
    return ACCURACY


def validation(groups: Iterable[Group]) -> Quantity:
    """The same on the validation part of the training set."""
    return {NATS: VAL_NATS, TASK_MEAN: VAL_TASK_MEAN, ACCURACY: VAL_ACCURACY}[headline(groups)]


def merit(group: Group) -> float:
    """By which groups are ranked, the best highest; below all others without a complete run."""
    quantity = headline([group])
    values = group.final(quantity)
    if not values:
        return -math.inf
    return centre(values, quantity.log) * (-1 if quantity is NATS else 1)


@dataclass(frozen=True)
class Setting:
    """Comparable groups: one experiment, one configuration but for the regulariser."""

    experiment: str
    groups: tuple[Group, ...]
    distinction: str  # what sets it apart from the experiment's other settings; empty for the only one

    @property
    def title(self) -> str:
        return f"{self.experiment}, {self.distinction}" if self.distinction else self.experiment

    @property
    def init(self) -> str:
        return value_text(self.groups[0].field("init") or "")

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    def of(self, *methods: str) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.method in methods)


@dataclass(frozen=True)
class Dependence(Setting):
    """Groups of one experiment that differ in `key`, as series along which nothing else differs."""

    key: str = ""
    series: tuple[Setting, ...] = ()

    @property
    def title(self) -> str:
        return self.experiment  # the figure itself names the key


def group_runs(runs: Iterable[Run]) -> tuple[Group, ...]:
    """The groups among the runs, labelled by what tells them apart."""
    parts = _partition(runs, lambda run: (run.experiment, *sorted(run.recipe.items())))
    parts.sort(key=_order)
    firsts = [part[0] for part in parts]
    labels = _labels(firsts, [run.recipe for run in firsts])
    faces = looks([part[0].method for part in parts])
    return tuple(Group(tuple(part), *face) for part, face in zip(parts, zip(labels, faces, strict=True), strict=True))


def settings(runs: Iterable[Run]) -> list[Setting]:
    """The settings among the runs, by experiment."""
    found = []
    for runs_of_one in _partition(runs, lambda run: run.experiment):
        parts = _partition(runs_of_one, lambda run: tuple(sorted(_surroundings(run).items())))
        parts.sort(key=_order)
        marks = [", ".join(mark) for mark in _distinctions([_surroundings(part[0]) for part in parts])]
        marks = _unlike(marks, [part[0] for part in parts])
        found += [Setting(part[0].experiment, group_runs(part), mark) for part, mark in zip(parts, marks, strict=True)]
    return found


def comparable_sets(runs: Iterable[Run]) -> list[Setting]:
    """What curves may share an axis: the groups of a setting; or all of an experiment that sweeps something else than
    the regulariser, since what varies there was chosen and is in the labels."""
    found = settings(runs)
    sets = []
    for setting in found:
        several = [other for other in found if other.experiment == setting.experiment]
        swept = setting.groups[0].runs[0].in_experiment and all(len(other.groups) == 1 for other in several)
        if not swept or len(several) == 1:
            sets.append(setting)
        elif setting is several[0]:
            everything = [run for other in several for run in other.runs]
            sets.append(Setting(setting.experiment, group_runs(everything), ""))
    return sets


def experiments(runs: Iterable[Run]) -> list[tuple[str, tuple[Group, ...]]]:
    """Each experiment with its groups, comparable or not; the paper's come first. An experiment on several data sets
    or models has a section for each, since their results share no scale."""
    return [(part.title, part.groups) for part in sections(runs)]


def sections(runs: Iterable[Run]) -> list[Setting]:
    parts = _partition(runs, lambda run: run.experiment)
    parts.sort(key=lambda part: (part[0].experiment not in PAPER_EXPERIMENTS, part[0].experiment))
    found = []
    for part in parts:
        on_one = _partition(part, _task)
        on_one.sort(key=lambda some: _task(some[0]))
        marks = _distinctions([dict(_task(some[0])) for some in on_one])
        found += [
            Setting(part[0].experiment, group_runs(some), ", ".join(mark))
            for some, mark in zip(on_one, marks, strict=True)
        ]
    return found


def compared_sets(runs: Iterable[Run]) -> list[Setting]:
    """Of an experiment all groups on one task, since what varies in it was chosen; of single runs comparable ones."""
    runs = list(runs)
    chosen = sections(run for run in runs if run.in_experiment)
    single = settings(run for run in runs if not run.in_experiment)
    return [setting for setting in (*chosen, *single) if len(setting.groups) > 1]


def sweep_grids(runs: Iterable[Run]) -> list[Setting]:
    """Sets of groups that differ in λ and ρ_spec alone and cover at least 2 × 2 values of them."""

    def rest(run: Run) -> tuple:
        return (run.experiment, *sorted((k, v) for k, v in run.recipe.items() if k not in GRID_KEYS))

    parts = _partition((run for run in runs if all(key in run.recipe for key in GRID_KEYS)), rest)
    grids = [part for part in parts if all(len({run.recipe[key] for run in part}) > 1 for key in GRID_KEYS)]
    return [Setting(grid[0].experiment, group_runs(grid), _grid_name(grid, grids)) for grid in grids]


def _grid_name(grid: Sequence[Run], grids: Sequence[Sequence[Run]]) -> str:
    alone = sum(other[0].experiment == grid[0].experiment for other in grids) == 1
    return "" if alone else f"{grid[0].method} {grid[0].hash}"


def dependences(runs: Iterable[Run]) -> list[Dependence]:
    """For every experiment, the numeric keys along which it has a series of three values or more."""
    found = []
    for part in _partition(runs, lambda run: run.experiment):
        values: dict[str, set[str]] = {}
        for run in part:
            for key, value in run.recipe.items():
                values.setdefault(key, set()).add(value)
        swept = [key for key, seen in values.items() if len(seen) >= 3 and all(map(is_number, seen))]
        for key in swept:
            found += [one for one in series_sets(part, key) if any(len(s.groups) >= 3 for s in one.series)]
    return found


def series_sets(runs: Iterable[Run], key: str) -> list[Dependence]:
    """For every experiment, its series along one field."""
    runs = list(runs)
    found = []
    for part in _by_experiment(series_along(runs, key)):
        name = _distinct_key(key, [run for run in runs if run.experiment == part[0].experiment])
        groups = tuple(group for series in part for group in series.groups)
        found.append(Dependence(part[0].experiment, groups, name, key, tuple(part)))
    return found


def _distinct_key(key: str, runs: Sequence[Run]) -> str:
    """The last part of a key; the whole key where the runs differ in another one of the same last part."""
    last = key.split(".")[-1]
    values: dict[str, set[str]] = {}
    for run in runs:
        for other, value in run.recipe.items():
            if other != key and other.split(".")[-1] == last:
                values.setdefault(other, set()).add(value)
    return key if any(len(seen) > 1 for seen in values.values()) else last


def _by_experiment(found: Sequence[Setting]) -> list[list[Setting]]:
    parts: dict[str, list[Setting]] = {}
    for setting in found:
        parts.setdefault(setting.experiment, []).append(setting)
    return list(parts.values())


def _task(run: Run) -> tuple[tuple[str, str], ...]:
    return tuple((group, run.choices[group]) for group in ("dataset", "model") if group in run.choices)


def series_along(runs: Iterable[Run], key: str) -> list[Setting]:
    """Settings whose groups differ in one field alone (`optimizer.lr`, or a whole choice such as `optimizer`)."""

    def rest(run: Run) -> dict[str, str]:
        return {k: v for k, v in run.recipe.items() if k != key and not k.startswith(f"{key}.")}

    found = []
    for runs_of_one in _partition((run for run in runs if key in run.recipe), lambda run: run.experiment):
        parts = _partition(runs_of_one, lambda run: tuple(sorted(rest(run).items())))
        parts.sort(key=_order)
        firsts = [part[0] for part in parts]
        labels = _labels(firsts, [rest(run) for run in firsts])
        found += [Setting(part[0].experiment, group_runs(part), mark) for part, mark in zip(parts, labels, strict=True)]
    return [series for series in found if len(series.groups) > 1]


def _partition(runs: Iterable[Run], key: Callable[[Run], Any]) -> list[list[Run]]:
    parts: dict[Any, list[Run]] = {}
    for run in runs:
        parts.setdefault(key(run), []).append(run)
    return [sorted(part, key=lambda run: natural(run.seed)) for part in parts.values()]


def _surroundings(run: Run) -> dict[str, str]:
    """What two regularisers must share to be compared. A revision marks a method whose numbers were changed."""
    return {k: v for k, v in run.recipe.items() if k != "revision" and not _is_regularizer(k)}


def _is_regularizer(key: str) -> bool:
    return key.rpartition("@")[2].split(".")[0] == "regularizer"  # also a choice nested in it


def _order(part: Sequence[Run]) -> tuple:
    run = part[0]
    values = sorted((key, natural(value)) for key, value in run.fields.items() if key not in ("name", "hash", "status"))
    return run.experiment, method_rank(run.method), values


def natural(value: Any) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        return 0, float(value), ""
    except (TypeError, ValueError):
        return 1, 0.0, str(value)


def is_number(value: str) -> bool:
    """Whether it has a place on an axis."""
    kind, number, _ = natural(value)
    return kind == 0 and math.isfinite(number)


def _labels(runs: Sequence[Run], recipes: Sequence[dict[str, str]]) -> list[str]:
    """The method, the regulariser's values that vary within the method, and all else that varies among the runs."""
    parts = [[method_label(run.method)] for run in runs]
    for method in {run.method for run in runs}:
        index = [i for i, run in enumerate(runs) if run.method == method]
        own = [{k: v for k, v in recipes[i].items() if _is_regularizer(k)} for i in index]
        for i, marks in zip(index, _distinctions(own), strict=True):
            parts[i] += marks
    rest = [{k: v for k, v in recipe.items() if not _is_regularizer(k)} for recipe in recipes]
    labels = [" ".join(part + marks) for part, marks in zip(parts, _distinctions(rest), strict=True)]
    return _unlike(labels, runs)


def _unlike(labels: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Configurations can differ by a key that only one of them has; the hash still tells them apart."""
    return [
        f"{label} [{run.hash}]".strip() if labels.count(label) > 1 else label
        for label, run in zip(labels, runs, strict=True)
    ]


def _distinctions(recipes: Sequence[dict[str, str]]) -> list[list[str]]:
    """For each recipe the `key=value` pairs that vary among those that have the key; for a part of a choice
    (`init.gain`), among those of the same choice: `init` says the rest."""
    values: dict[tuple[str, str | None], set[str]] = {}
    for recipe in recipes:
        for key, value in recipe.items():
            values.setdefault(_comparable(key, recipe), set()).add(value)
    keys = [key for key in dict.fromkeys(key for recipe in recipes for key in recipe) if not _hidden(key)]
    return [
        [f"{symbol(key)}={recipe[key]}" for key in keys if key in recipe and len(values[_comparable(key, recipe)]) > 1]
        for recipe in recipes
    ]


def _comparable(key: str, recipe: dict[str, str]) -> tuple[str, str | None]:
    choice = key.split(".")[0]
    return key, recipe.get(choice) if choice != key else None


def _hidden(key: str) -> bool:
    return key.split(".")[-1].startswith("_")


def symbol(key: str) -> str:
    """The last part of a dotted key; of a regulariser's, the paper's letter where it has one."""
    last = key.split(".")[-1]
    return SYMBOLS.get(last, last) if _is_regularizer(key) else last
