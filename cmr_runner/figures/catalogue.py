"""The pictures there are: what each shows, what it needs, which sets of runs it is drawn for, and by which function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from cmr_runner.paper.settings import baseline_settings, beyond_stress, stress_settings
from cmr_runner.results.grouping import (
    Setting,
    comparable_sets,
    compared_sets,
    dependences,
    series_sets,
    settings,
    sweep_grids,
)
from cmr_runner.results.reading import Run
from cmr_runner.results.tasks import TASK

SINGLE_RUN = "cmr-run regularizer=cmr init=kappa_stress"
Selection = Callable[[Sequence[Run]], Sequence[Setting]]


@dataclass(frozen=True)
class Figure:
    """`source` is module:function under cmr_runner.figures, imported when something is drawn. `default` pictures are
    drawn without being asked for: the paper's, and those of what was swept."""

    name: str
    shows: str
    needs: str
    command: str
    source: str
    select: Selection = field(repr=False)
    default: bool = False


FIGURES = (
    Figure(
        "main",
        "the paper's main figure, and each of its four panels alone",
        "runs of regularizer none and cmr at init=kappa_stress",
        "cmr-run -m experiment=kappa_stress",
        "training_curves:main_figure",
        stress_settings,
        default=True,
    ),
    Figure(
        "baselines",
        "the paper's appendix: final accuracy, median and P90 κ(G) of five methods",
        "runs of regularizer none and another of l2, spectral_norm, cmr, spectral_norm_cmr, not at init=kappa_stress",
        "cmr-run -m experiment=standard_baselines",
        "baselines:baseline_figures",
        baseline_settings,
        default=True,
    ),
    Figure(
        "comparison",
        "final accuracy and κ of all groups of an experiment (ablations, baselines)",
        "an experiment with two groups of runs or more",
        "cmr-run -m experiment=rivals",
        "comparison:comparison_figures",
        compared_sets,
        default=True,
    ),
    Figure(
        "dependence",
        "final accuracy and κ over each swept key, with the seeds' band",
        "runs that differ in one value alone, 3 values or more",
        "cmr-run -m experiment=sweep_lambda",
        "dependence:dependence_figures",
        dependences,
        default=True,
    ),
    Figure(
        "sweep",
        "λ × ρ_spec heat maps of accuracy and κ",
        "runs that differ in regularizer.lam and regularizer.rho_spec alone, 2 × 2 values or more",
        "cmr-run -m experiment=sweep_lambda_rho",
        "sweep_map:sweep_maps",
        sweep_grids,
        default=True,
    ),
    Figure(
        "tasks",
        "accuracy at the end of each task of a stream, and the first task against the last",
        "runs on a stream of tasks",
        "cmr-run -m experiment=plasticity",
        "task_curves:task_figures",
        lambda runs: [one for one in comparable_sets(runs) if any(group.has(TASK) for group in one.groups)],
        default=True,
    ),
    Figure(
        "time",
        "test accuracy against wall-clock time and against steps",
        "metrics.csv",
        "cmr-run -m experiment=rivals",
        "time_curves:time_figures",
        comparable_sets,
    ),
    Figure(
        "tradeoff",
        "final accuracy against κ, one point per run",
        "an experiment with two groups of runs or more",
        "cmr-run -m experiment=rivals",
        "tradeoff:tradeoff_figures",
        compared_sets,
    ),
    Figure(
        "curves",
        "the main figure's four panels for every other set of comparable runs; small multiples where there are many",
        "runs beyond those of the main figure",
        "cmr-run -m experiment=standard_baselines",
        "training_curves:training_curves",
        lambda runs: comparable_sets(beyond_stress(runs)),
    ),
    Figure(
        "learning",
        "training loss, and accuracy (of text the loss) on the validation part beside the test set",
        "runs with a validation part",
        "cmr-run -m experiment=cifar_plain",
        "learning_curves:learning_figures",
        comparable_sets,
    ),
    Figure(
        "kinds",
        "κ by kind of layer over epochs: convolution, attention, MLP, head",
        "layers.csv with two kinds of layers or more",
        "cmr-run -m experiment=cifar_vit",
        "kind_curves:kind_figures",
        comparable_sets,
    ),
    Figure(
        "scale",
        "median σ_min and σ_max over layers beside the accuracy: what grows first",
        "layers.csv",
        SINGLE_RUN,
        "scale:scale_figures",
        comparable_sets,
    ),
    Figure(
        "layers",
        "layer × epoch heat maps of κ, all methods on one scale",
        "layers.csv",
        SINGLE_RUN,
        "layer_map:layer_maps",
        comparable_sets,
    ),
    Figure(
        "spectra",
        "singular values of every layer before and after training",
        "spectra.csv",
        SINGLE_RUN,
        "spectra:spectrum_figures",
        comparable_sets,
    ),
    Figure(
        "spectrum_history",
        "distribution of the singular values over training, as a heat map and as an animation (GIF)",
        "spectra.csv of every epoch",
        f"{SINGLE_RUN} spectra=all",
        "spectrum_history:history_figures",
        comparable_sets,
    ),
    Figure(
        "activity",
        "how often cap and clip act, and the spectral share of the gradient",
        "runs of a capped regularizer (rho_spec)",
        SINGLE_RUN,
        "activity:activity_figures",
        comparable_sets,
    ),
    Figure(
        "moment_weights",
        "learned moment weights over epochs",
        "weight_3 … in metrics.csv",
        "cmr-run regularizer=cmr_learned",
        "moment_weights:moment_weight_figures",
        settings,
    ),
    Figure(
        "diagnostics",
        "κ of the Jacobian and layer gradients beside the bounds of Section 4",
        "jacobian_kappa in metrics.csv",
        "cmr-run -m experiment=diagnostics",
        "diagnostics:diagnostic_figures",
        comparable_sets,
    ),
)


def by_figure(key: str) -> Figure:
    """The picture of `--by key`."""
    return Figure(
        "by",
        f"how results depend on {key}",
        f"runs that differ in {key} alone",
        f"cmr-run -m {key}=…,…",
        "dependence:by_figures",
        partial(series_sets, key=key),
    )


NAMES = tuple(figure.name for figure in FIGURES)
