"""The columns worth drawing: what an axis calls them, and on which scale they live."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmr_runner.results.layer_kinds import ORDER
from cmr_runner.results.reading import Run
from cmr_runner.results.tasks import FIRST, MEAN


@dataclass(frozen=True)
class Quantity:
    """A column of metrics.csv. `factor` turns the logged value into the drawn one (a fraction into per cent)."""

    column: str
    label: str
    log: bool = False
    factor: float = 1.0
    short: str = ""  # for the head of a table
    over: str = ""  # divide by this column

    def values(self, run: Run) -> np.ndarray:
        """The quantity at each epoch of the run's metrics.csv."""
        values = run.metrics[self.column] * self.factor
        if not self.over:
            return values
        below = run.metrics[self.over]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(below > 0, values / below, np.nan)

    def logged(self, run: Run) -> bool:
        return self.column in run.metrics

    def within_bounds(self, band: np.ndarray) -> np.ndarray:
        """Student's interval knows no bounds; a percentage does, and no κ is below 1."""
        if self.factor == 100.0:
            return np.clip(band, 0.0, 100.0)
        return np.maximum(band, 1.0) if self.is_kappa else band

    @property
    def is_kappa(self) -> bool:
        return self.column.startswith("kappa")

    @property
    def heading(self) -> str:
        return self.short or self.label

    @property
    def axis_label(self) -> str:
        return f"{self.label} (log)" if self.log else self.label


# 1 ÷ the precision of float64: what lies beyond is rounding, and the matrix is singular.
SINGULAR = 1e16


class LayerMedian(Quantity):
    """A column of layers.csv, its median over the layers."""

    def values(self, run: Run) -> np.ndarray:
        return _over_layers(run, self.column, np.median) * self.factor

    def logged(self, run: Run) -> bool:
        return self.column in run.layers


class KindKappa(Quantity):
    """κ(W), its mean over the layers of one kind; `column` is the kind, in the words of `kind_quantities`."""

    @property
    def kind(self) -> str:
        return self.column.removeprefix(KIND_PREFIX)

    def values(self, run: Run) -> np.ndarray:
        return _over_layers(run, "kappa", np.mean, run.layer_kinds == self.kind)

    def logged(self, run: Run) -> bool:
        return "kappa" in run.layers and bool((run.layer_kinds == self.kind).any())


def _over_layers(run: Run, column: str, join: Callable[..., Any], among: np.ndarray | None = None) -> np.ndarray:
    """A column of layers.csv joined over layers, of all rows or of those `among` them, at each epoch of metrics.csv."""
    epochs, values = run.layers["epoch"], run.layers[column]
    usable = np.flatnonzero(~np.isnan(values) if among is None else ~np.isnan(values) & among)
    usable = usable[np.argsort(epochs[usable], kind="stable")]
    begin, end = (np.searchsorted(epochs[usable], run.metrics["epoch"], side) for side in ("left", "right"))
    counts = end - begin
    if len(counts) and counts[0] and (counts == counts[0]).all():  # every layer at every epoch: a matrix
        return join(values[usable[begin[:, None] + np.arange(counts[0])]], axis=1)
    parts = (values[usable[first:last]] for first, last in zip(begin, end, strict=True))
    return np.array([join(part) if len(part) else np.nan for part in parts])


KIND_PREFIX = "kappa of "


def kind_quantities(runs: Sequence[Run]) -> list[KindKappa]:
    """κ of each kind of layer that the runs have; none where all layers are of one kind."""
    found = {kind for run in runs for kind in run.layer_kinds}
    kinds = [kind for kind in ORDER if kind in found]
    return [KindKappa(f"{KIND_PREFIX}{kind}", f"mean κ(W), {kind}", log=True) for kind in kinds if len(kinds) > 1]


ACCURACY = Quantity("test_accuracy", "test accuracy (%)", factor=100.0, short="accuracy %")
GRAD_NORM = Quantity("grad_norm", "mean gradient norm", log=True, short="grad norm")
KAPPA = Quantity("kappa_mean", "mean κ(W)", log=True)
MAX_MOMENT = Quantity("max_abs_moment", "max |s_k|, largest layer")
MEAN_MOMENT = Quantity("mean_abs_moment", "max |s_k|, mean over layers")
KAPPA_GRAM_MEDIAN = Quantity("kappa_gram_median", "median κ(G)", log=True)
KAPPA_GRAM_P90 = Quantity("kappa_gram_p90", "90th percentile κ(G)", log=True, short="P90 κ(G)")
CAP_ACTIVE = Quantity("cap_active_fraction", "cap active (% of steps)", factor=100.0, short="cap %")
CLIP_ACTIVE = Quantity("clip_active_fraction", "clipped (% of steps)", factor=100.0)
SPECTRAL_RATIO = Quantity("grad_norm_spec", "spectral ÷ task norm", over="grad_norm_task")
SIGMA_MAX = LayerMedian("sigma_max", "median σ_max", log=True, short="σ_max")
SIGMA_MIN = LayerMedian("sigma_min", "median σ_min", log=True, short="σ_min")
STABLE_RANK = LayerMedian("stable_rank", "median stable rank", short="stable rank")
# Where the task is text, whose tokens are characters.
NATS = Quantity("test_loss", "test loss (nats per character)", short="nats per character")
VAL_NATS = Quantity("val_loss", "validation loss (nats per character)", short="validation nats")
PERPLEXITY = Quantity("test_perplexity", "test perplexity", log=True, short="perplexity")
VAL_ACCURACY = Quantity("val_accuracy", "validation accuracy (%)", factor=100.0, short="validation %")
VAL_PERPLEXITY = Quantity("val_perplexity", "validation perplexity", log=True)
# Where there is a stream of tasks.
TASK_MEAN = Quantity(
    f"{MEAN}_test_accuracy", "test accuracy, mean over tasks (%)", factor=100.0, short="mean of tasks %"
)
FIRST_TASK = Quantity(
    f"{FIRST}_test_accuracy", "test accuracy after the first task (%)", factor=100.0, short="first task %"
)
LAST_TASK = Quantity("test_accuracy", "test accuracy after the last task (%)", factor=100.0, short="last task %")
VAL_TASK_MEAN = Quantity(
    f"{MEAN}_val_accuracy", "validation accuracy, mean over tasks (%)", factor=100.0, short="validation %"
)
TRAIN_LOSS = Quantity("train_loss", "training loss", log=True, short="train loss")
JACOBIAN = Quantity("jacobian_kappa", "κ(J)", log=True)
JACOBIAN_BOUND = Quantity("jacobian_kappa_bound", "bound on κ(J)", log=True)

QUANTITIES = (
    ACCURACY,
    GRAD_NORM,
    KAPPA,
    MEAN_MOMENT,
    MAX_MOMENT,
    Quantity("test_loss", "test loss"),
    TRAIN_LOSS,
    Quantity("grad_norm_task", "task gradient norm", log=True),
    Quantity("grad_norm_spec", "spectral gradient norm", log=True),
    Quantity("kappa_median", "median κ(W)", log=True),
    Quantity("kappa_p90", "90th percentile κ(W)", log=True),
    Quantity("kappa_max", "largest κ(W)", log=True),
    Quantity("kappa_gram_mean", "mean κ(G)", log=True),
    KAPPA_GRAM_MEDIAN,
    KAPPA_GRAM_P90,
    Quantity("rho_cond_mean", "mean ρ_cond"),
    Quantity("rho_moment_mean", "mean ρ_moment"),
    Quantity("lambda_t", "λ_t"),
    CAP_ACTIVE,
    CLIP_ACTIVE,
    VAL_ACCURACY,
    TASK_MEAN,
    VAL_TASK_MEAN,
    Quantity("val_loss", "validation loss"),
    PERPLEXITY,
    VAL_PERPLEXITY,
    Quantity("lr", "learning rate", log=True),
    Quantity("fallbacks", "layers computed again per epoch"),
    Quantity("seconds", "seconds per epoch"),
    Quantity("spectral_seconds", "spectral seconds per epoch"),
    JACOBIAN,
    JACOBIAN_BOUND,
)

# What a summary table shows, in its order.
SUMMARY = (ACCURACY, KAPPA, GRAD_NORM, MEAN_MOMENT, MAX_MOMENT, KAPPA_GRAM_MEDIAN, KAPPA_GRAM_P90)
# Those of a table by epoch, after what the network does: the scale and the condition of its layers.
BY_EPOCH = (GRAD_NORM, SIGMA_MIN, SIGMA_MAX, STABLE_RANK, KAPPA, KAPPA_GRAM_MEDIAN, CAP_ACTIVE)
