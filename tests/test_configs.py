"""Every file in every group composes, builds and trains a step; and so does every pair of families."""

import functools
import math
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from run_process import call, directories, record

from cmr_runner.commands import composition, construction
from cmr_runner.commands.settings import Mistake, settings_of
from cmr_runner.training.loop import Trainer

CONF = Path(__file__).parents[1] / "conf"
SMALL = [
    "dataset=synthetic",
    "dataset.shape=[1,8,8]",
    "dataset.train=16",
    "dataset.test=8",
    "trainer.epochs=1",
    "trainer.batch_size=8",
]
# A model that is not named here is trained at its own size.
SMALL_MODEL = {
    "mlp": ["model.depth=3", "model.width=12"],
    "cnn": ["model.channels=[4,6]"],
    "transformer": ["model.depth=1", "model.width=8", "model.heads=2"],
    "vit": ["model.depth=1", "model.width=8", "model.heads=2"],
    "resnet": ["model.depth=8", "model.width=4"],
    "plain": ["model.depth=8", "model.width=4"],
}


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


# gpt needs text (test_beyond.py), and transformer is vit's class.
FAMILIES = {
    **{group: options(group) for group in ("regularizer", "init", "optimizer")},
    "model": [name for name in options("model") if name not in ("gpt", "transformer")],
}


def composed(*overrides: str, model: str = "mlp") -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=[*SMALL, f"model={model}", *SMALL_MODEL.get(model, ()), *overrides])


@functools.cache
def default() -> DictConfig:
    return composed()


@functools.cache
def node(group: str, option: str) -> DictConfig:
    """The composed node of one file of a group."""
    if group == "model":
        return composed(model=option)[group]
    return composed(f"{group}={option}")[group]


@pytest.fixture(scope="module")
def saved_weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of weights for each model, for init=checkpoint."""
    folder = tmp_path_factory.mktemp("weights")
    for name in FAMILIES["model"]:
        model = construction.build(OmegaConf.create({"model": node("model", name)}), "model", (1, 8, 8), 10)
        torch.save(model.state_dict(), folder / f"{name}.pt")
    return {name: folder / f"{name}.pt" for name in FAMILIES["model"]}


def trained(choices: dict[str, str], weights: dict[str, Path]) -> tuple[Trainer, dict[str, float]]:
    cfg = default().copy()
    for group, option in choices.items():
        cfg[group] = node(group, option)
    if choices.get("init") == "checkpoint":
        cfg.init.path = str(weights[choices["model"]])
    config = composition.plain_config(cfg)
    trainer = construction.build_trainer(cfg, settings_of(config), "cpu")
    *_, last = trainer.run()
    return trainer, last.metrics


def pairs() -> list[dict[str, str]]:
    """Runs in which every option of one family meets every option of each other one."""
    regularizers, inits, optimizers, models = FAMILIES.values()
    return [
        {
            "regularizer": regularizer,
            "init": init,
            "optimizer": optimizers[(i + j) % len(optimizers)],
            "model": models[(i + 2 * j) % len(models)],
        }
        for i, regularizer in enumerate(regularizers)
        for j, init in enumerate(inits)
    ]


def test_the_runs_below_cover_every_pair_of_families() -> None:
    for a in FAMILIES:
        for b in FAMILIES:
            if a != b:
                met = {(run[a], run[b]) for run in pairs()}
                assert len(met) == len(FAMILIES[a]) * len(FAMILIES[b]), (a, b)


@pytest.mark.parametrize("regularizer", options("regularizer"))
def test_a_regularizer_trains_with_every_init_optimizer_and_model(
    regularizer: str, saved_weights: dict[str, Path]
) -> None:
    for choices in (run for run in pairs() if run["regularizer"] == regularizer):
        trainer, metrics = trained(choices, saved_weights)
        assert metrics["step"] == 2, choices
        assert math.isfinite(metrics["train_loss"]), choices
        assert metrics["grad_norm"] > 0, choices
        assert math.isfinite(metrics["kappa_mean"]), choices
        (method,) = {row.method.partition(" (")[0].replace(" + ", "_") for row in trainer.plan}
        assert regularizer.startswith(method)  # cmr_cond is cmr with other values
        assert all(min(row.shape) >= 2 for row in trainer.plan)


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", options("regularizer"))
def test_every_pair_of_families_runs_through_the_command_on_digits(
    regularizer: str, saved_weights: dict[str, Path], tmp_path: Path
) -> None:
    digits = ("dataset=digits", "dataset.train_limit=16", "dataset.test_limit=8", *SMALL[-2:], "progress=none")
    for choices in (run for run in pairs() if run["regularizer"] == regularizer):
        words = [f"{group}={option}" for group, option in choices.items()] + SMALL_MODEL.get(choices["model"], [])
        if choices["init"] == "checkpoint":
            words.append(f"init.path={saved_weights[choices['model']]}")
        done = call(tmp_path, *words, base=digits)
        assert done.returncode == 0, (choices, done.stderr)
    runs = [record(directory) for directory in directories(tmp_path)]
    assert len(runs) == len(options("init"))
    assert {run["status"] for run in runs} == {"completed"}
    assert all(math.isfinite(run["final"]["train_loss"]) for run in runs)


def test_the_papers_settings_are_the_defaults() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=[])
    r = cfg.regularizer
    assert (r.K, r.lam, r.alpha1, r.alpha2, r.beta, r.rho_spec, r.warmup) == (5, 0.02, 1.0, 0.1, 0.15, 0.5, 2)
    assert (r.eps, r.gram, r.mixing) == (1e-6, "short_side", "penalty_cap")
    assert (cfg.trainer.epochs, cfg.trainer.batch_size, cfg.trainer.clip_norm) == (5, 64, 5.0)
    assert (cfg.model.depth, cfg.model.width, cfg.model.activation) == (15, 256, "tanh")
    assert (cfg.init.gain, cfg.optimizer.lr) == (0.06, 1e-3)


def test_ablations_differ_from_cmr_in_one_key() -> None:
    cmr = OmegaConf.to_container(node("regularizer", "cmr"))
    for name, key in (("cmr_cond", "alpha2"), ("cmr_moment", "alpha1")):
        assert OmegaConf.to_container(node("regularizer", name)) == {**cmr, key: 0.0}  # type: ignore[dict-item]


def test_capped_mixing_keys_mean_the_same_for_every_penalty() -> None:
    keys = {"lam", "rho_spec", "mixing", "warmup", "every"}
    penalties = [name for name in options("regularizer") if "lam" in node("regularizer", name)]
    assert {"cmr", "l2", "srip"} <= set(penalties)
    for name in penalties:
        assert keys <= set(node("regularizer", name)), name


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("regularizer.lam=-1", "regularizer.lam must be >= 0, got -1"),
        ("regularizer.K=2", "regularizer.K must be an integer >= 3, got 2"),
        (
            "regularizer.layers.include=[nothing]",
            "regularizer.layers: no layer to regularise: 3 weights were left out because: not in include",
        ),
        ("regularizer.layers.min_side=0", "regularizer.layers.min_side must be an integer >= 1, got 0"),
        (
            "regularizer.layers.split={*.0.weight: 5}",
            "regularizer.layers.split must divide the 12 rows of layers.0.weight",
        ),
        (
            "regularizer.layers.heads={*.0.weight: 5}",
            "regularizer.layers.heads must divide the 12 rows of layers.0.weight",
        ),
        ("init.gain=0", "init.gain must be in (0, 1000000.0], got 0"),
        ("optimizer.lr=0", "optimizer.lr must be > 0, got 0"),
        ("model.depth=0", "model.depth must be an integer in [1, 4096], got 0"),
    ],
)
def test_a_mistake_is_named_by_its_key(override: str, message: str) -> None:
    cfg = composed(override)
    with pytest.raises(Mistake) as error:
        construction.build_trainer(cfg, settings_of(composition.plain_config(cfg)), "cpu")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
