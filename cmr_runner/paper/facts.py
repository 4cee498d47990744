"""The values the paper reports, and the settings it reports them for."""

from dataclasses import dataclass

from cmr_runner.results.quantities import ACCURACY, GRAD_NORM, KAPPA, Quantity

KAPPA_STRESS, BASELINES = "kappa_stress", "standard_baselines"
COMMANDS = {experiment: f"cmr-run -m experiment={experiment}" for experiment in (KAPPA_STRESS, BASELINES)}
TITLES = {KAPPA_STRESS: "Experiment 1, κ-stress", BASELINES: "Experiment 2, standard baselines"}

# Fields the paper fixes: a run that differs in one is not the paper's, and gets no verdict.
COMMON = {
    "model": "mlp",
    "model.depth": "15",
    "model.width": "256",
    "model.activation": "tanh",
    "dataset": "mnist",
    "optimizer": "adam",
    "optimizer.lr": "0.001",
    "trainer.clip_norm": "5",
}
SETTINGS: dict[str, dict[str, str]] = {
    KAPPA_STRESS: {**COMMON, "init": "kappa_stress", "trainer.epochs": "5"},
    BASELINES: {**COMMON, "init": "glorot_uniform", "trainer.epochs": "20"},
}
CMR_FIELDS = {
    "regularizer.lam": "0.02",
    "regularizer.alpha1": "1",
    "regularizer.alpha2": "0.1",
    "regularizer.beta": "0.15",
    "regularizer.K": "5",
    "regularizer.rho_spec": "0.5",
    "regularizer.warmup": "2",
    "regularizer.mixing": "penalty_cap",
}


@dataclass(frozen=True)
class PaperValue:
    quantity: Quantity
    vanilla: float
    cmr: float


# Experiment 1, after 5 epochs.
STRESS_VALUES = (
    PaperValue(ACCURACY, 10.0, 86.0),
    PaperValue(KAPPA, 3.9e3, 3.4),
    PaperValue(GRAD_NORM, 1.4, 4.2),
)
# Experiment 2: the epoch after which the paper sees vanilla's κ(G) rise.
RISE_AFTER = 4
