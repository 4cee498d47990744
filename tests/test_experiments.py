"""Each experiment file is a whole figure with -m: it composes to the right jobs."""

import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from cmr_runner.commands.construction import check_groups

CONF = Path(__file__).parents[1] / "conf"
SEEDS_3, SEEDS_2 = "012", "01"

# name: (number of jobs, what each value of some key is run with)
EXPERIMENTS = {
    "kappa_stress": (2 * 5, {"regularizer": {"none", "cmr"}, "seed": set("01234")}),
    "standard_baselines": (
        5 * 3,
        {"regularizer": {"none", "l2", "spectral_norm", "cmr", "spectral_norm_cmr"}, "seed": set(SEEDS_3)},
    ),
    "ablation_terms": (
        4 * 3,
        {"regularizer": {"cmr", "cmr_cond", "cmr_moment", "cmr_learned"}, "seed": set(SEEDS_3)},
    ),
    "ablation_mixing": (
        3 * 2 * 2,
        {
            "regularizer.mixing": {"penalty_cap", "algorithm1", "uncapped"},
            "regularizer.gram": {"short_side", "columns"},
            "seed": set(SEEDS_2),
        },
    ),
    "ablation_batch": (
        2 * 2 * 2,
        {"regularizer": {"none", "cmr"}, "trainer.batch_size": {"64", "128"}, "seed": set(SEEDS_2)},
    ),
    "ablation_epsilon": (4 * 2, {"seed": set(SEEDS_2)}),
    "sweep_lambda_rho": (4 * 3, {"regularizer.lam": {"0.005", "0.01", "0.02", "0.05"}, "seed": {"0"}}),
    "ablation_sn": (2 * 2, {"regularizer": {"spectral_norm", "spectral_norm_cmr"}, "seed": set(SEEDS_2)}),
    "rivals_sn": (2 * 2, {"regularizer": {"spectral_norm", "spectral_norm_cmr"}, "seed": set(SEEDS_2)}),
    "sweep_lambda": (5 * 3, {"regularizer.lam": {"0.02", "0.05", "0.1", "0.2", "0.5"}, "seed": set(SEEDS_3)}),
    "controls": (3 * 3 * 2, {"init": {"kappa_stress", "orthogonal", "rescaled"}, "seed": set(SEEDS_2)}),
    "engines": (4 * 3, {"regularizer.engine": {"exact", "fast", "auto", "stochastic"}, "seed": set(SEEDS_3)}),
    "ablation_refresh": (7 * 3, {"seed": set(SEEDS_3)}),
    "ablation_every": (5 * 3, {"regularizer.every": {"1", "2", "4", "8", "16"}, "seed": set(SEEDS_3)}),
    "ablation_alpha2": (
        2 * 4 * 3,
        {
            "regularizer.lam": {"0.02", "0.1"},
            "regularizer.alpha2": {"0.0", "0.1", "1.0", "10.0"},
            "seed": set(SEEDS_3),
        },
    ),
    "diagnostics": (2, {"regularizer": {"none", "cmr"}, "seed": {"0"}}),
    "prescribed_kappa": (2 * 3, {"regularizer": {"none", "cmr"}, "seed": set(SEEDS_3)}),
}

BEYOND = ("cifar_plain", "cifar_resnet", "cifar_vit", "char_gpt", "plasticity")


def composed(*overrides: str, hydra_too: bool = False) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides), return_hydra_config=hydra_too)


def jobs(experiment: str) -> list[list[str]]:
    """The overrides of each job that Hydra's own sweeper makes of the experiment's parameters."""
    parameters = composed(f"experiment={experiment}", hydra_too=True).hydra.sweeper.params
    overrides = OverridesParser.create().parse_overrides([f"{key}={value}" for key, value in parameters.items()])
    (batch,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    return [list(job) for job in batch]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_makes_the_right_jobs(name: str) -> None:
    count, values = EXPERIMENTS[name]
    found = jobs(name)
    assert len(found) == count
    assert len({tuple(job) for job in found}) == count
    for key, expected in values.items():
        assert {part.partition("=")[2] for job in found for part in job if part.startswith(f"{key}=")} == expected


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_first_and_last_job_compose_and_their_values_fit(name: str) -> None:
    found = jobs(name)
    first, last = (composed(f"experiment={name}", *job) for job in (found[0], found[-1]))
    assert first != last
    for cfg in (first, last):
        check_groups(cfg)


def swept(name: str, key: str) -> list[str]:
    return str(composed(f"experiment={name}", hydra_too=True).hydra.sweeper.params[key]).split(",")


@pytest.mark.parametrize("name", BEYOND)
def test_an_experiment_beyond_the_paper_chooses_lambda_on_validation(name: str) -> None:
    tuning = composed(f"experiment={name}_tune", hydra_too=True)
    # Text has a validation part of its own.
    assert tuning.dataset.get("validation") or name == "char_gpt"
    tuned = {path.stem: OmegaConf.load(path) for path in (CONF / "regularizer" / name).glob("*.yaml")}
    assert set(swept(f"{name}_tune", "regularizer")) == tuned.keys()
    assert {f"{name}/{method}" for method in tuned} <= set(swept(name, "regularizer"))
    values = {float(value) for value in swept(f"{name}_tune", "regularizer.lam")}
    for method, node in tuned.items():
        assert node.keys() == {"defaults", "lam", "warmup"}
        assert node.defaults[0] == f"/regularizer/{method}@_here_"
        assert node.lam in values
        assert node.warmup == float(tuning.hydra.sweeper.params["regularizer.warmup"])
    assert swept(name, "seed") == ["0", "1", "2"]


def test_rivals_compares_the_regularizers_it_names_with_none_and_cmr() -> None:
    named = swept("rivals", "regularizer")
    assert {"none", "cmr"} < set(named) <= {path.stem for path in (CONF / "regularizer").glob("*.yaml")}
    assert len(jobs("rivals")) == len(set(named)) * len(SEEDS_2)


def test_experiments_are_deltas_only() -> None:
    for path in (CONF / "experiment").glob("*.yaml"):
        text = path.read_text()
        assert text.startswith("# @package _global_\n"), path
        assert "_target_" not in text, path


def test_standard_baselines_is_experiment_two() -> None:
    cfg = composed("experiment=standard_baselines")
    assert cfg.trainer.epochs == 20
    assert cfg.init._target_.endswith("glorot_uniform_")


def test_controls_have_no_regularizer() -> None:
    assert composed("experiment=controls").regularizer._target_ == "cmr_runner.regularizers.Regularizer"


@pytest.mark.slow
def test_rivals_run_through_the_command_on_digits(tmp_path: Path) -> None:
    small = ["dataset=digits", "dataset.train_limit=32", "model.depth=3", "model.width=12", "trainer.epochs=1"]
    command = [sys.executable, "-m", "cmr_runner", "-m", "experiment=rivals", *small, "seed=0", "progress=none"]
    done = subprocess.run(
        [*command, f"output_root={tmp_path}"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    named = swept("rivals", "regularizer")
    runs = list((tmp_path / "rivals").glob("*/run.json"))
    assert len(runs) == len(named)
    assert f"{len(named)} completed" in done.stdout
