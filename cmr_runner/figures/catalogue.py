"""The figures there are: what each shows, what it needs, and the command that makes what it needs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from cmr_runner.results.reading import Run

if TYPE_CHECKING:
    from cmr_runner.figures.style import Drawing, Omission


@dataclass(frozen=True)
class Figure:
    name: str
    shows: str
    needs: str
    command: str
    source: str  # module:function under cmr_runner.figures, imported when drawn
    arguments: tuple[str, ...] = ()

    def drawings(self, runs: Sequence[Run]) -> "Iterator[Drawing | Omission]":
        module, function = self.source.split(":")
        draw: Callable[..., Iterator[Drawing | Omission]] = getattr(
            import_module(f"cmr_runner.figures.{module}"), function
        )
        return draw(runs, *self.arguments)


SINGLE_RUN = "cmr-run regularizer=cmr init=kappa_stress"

FIGURES = (
    Figure(
        "main",
        "the paper's main figure, and each of its four panels alone",
        "runs of regularizer none and cmr at init=kappa_stress",
        "cmr-run -m experiment=kappa_stress",
        "training_curves:main_figure",
    ),
    Figure(
        "baselines",
        "the paper's appendix: final accuracy, median and P90 κ(G) of five methods",
        "runs of regularizer none and another of l2, spectral_norm, cmr, spectral_norm_cmr, not at init=kappa_stress",
        "cmr-run -m experiment=standard_baselines",
        "baselines:baseline_figures",
    ),
    Figure(
        "curves",
        "the main figure's four panels for every other set of comparable runs",
        "runs beyond those of the main figure",
        "cmr-run -m experiment=standard_baselines",
        "training_curves:training_curves",
    ),
    Figure(
        "comparison",
        "final accuracy and κ of all groups of an experiment (ablations, rivals)",
        "an experiment with two groups of runs or more",
        "cmr-run -m experiment=rivals",
        "comparison:comparison_figures",
    ),
    Figure(
        "sweep",
        "λ × ρ_spec heat maps of accuracy and κ",
        "runs that differ in regularizer.lam and regularizer.rho_spec alone, 2 × 2 values or more",
        "cmr-run -m experiment=sweep_lambda_rho",
        "sweep_map:sweep_maps",
    ),
    Figure(
        "scale",
        "median σ_min and σ_max over layers beside the accuracy: what grows first",
        "layers.csv",
        SINGLE_RUN,
        "scale:scale_figures",
    ),
    Figure(
        "layers",
        "layer × epoch heat map of κ",
        "layers.csv",
        SINGLE_RUN,
        "layer_map:layer_maps",
    ),
    Figure(
        "spectra",
        "singular values of every layer before and after training",
        "spectra.csv",
        SINGLE_RUN,
        "spectra:spectrum_figures",
    ),
    Figure(
        "activity",
        "how often cap and clip act, and the spectral share of the gradient",
        "runs of a capped regularizer (rho_spec)",
        SINGLE_RUN,
        "activity:activity_figures",
    ),
    Figure(
        "moment_weights",
        "learned moment weights over epochs",
        "weight_3 … in metrics.csv",
        "cmr-run regularizer=cmr_learned",
        "activity:moment_weight_figures",
    ),
    Figure(
        "diagnostics",
        "κ of the Jacobian and layer gradients beside the bounds of Section 4",
        "jacobian_kappa in metrics.csv",
        "cmr-run -m experiment=diagnostics",
        "diagnostics:diagnostic_figures",
    ),
)


def by_figure(key: str) -> Figure:
    """The figure of `--by key`."""
    return Figure(
        "by",
        f"how results depend on {key}",
        f"runs that differ in {key} alone",
        f"cmr-run -m {key}=…,…",
        "by_field:by_figures",
        (key,),
    )


NAMES = tuple(figure.name for figure in FIGURES)
