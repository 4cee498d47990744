"""What the launchers' files say, as the launchers get it."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from cmr_runner.commands import composition
from cmr_runner.commands.settings import cores

pytestmark = pytest.mark.filterwarnings("ignore:(?s).*is validated against ConfigStore schema")


def launcher(name: str, *overrides: str) -> DictConfig:
    composition.register_resolvers()
    with initialize_config_dir(str(composition.config_directory()), version_base="1.3"):
        return compose("config", [f"hydra/launcher={name}", *overrides], return_hydra_config=True).hydra.launcher


def test_ray_is_told_what_its_start_needs_only_where_it_is_started() -> None:
    init = launcher("ray").ray.init
    assert init.num_cpus == cores()
    assert init.object_store_memory >= 75 * 2**20
    assert "cmr-ray" in init._temp_dir
    connecting = launcher("ray", "hydra.launcher.ray.init.address=auto").ray.init
    assert connecting.address == "auto"
    assert [connecting[key] for key in ("num_cpus", "object_store_memory", "_temp_dir")] == [None] * 3


@pytest.mark.parametrize(
    ("name", "key"),
    [("submitit_slurm", "cpus_per_task"), ("submitit_local", "cpus_per_task"), ("ray", "ray.remote.num_cpus")],
)
def test_a_job_gets_as_many_cores_as_it_has_threads(name: str, key: str) -> None:
    assert OmegaConf.select(launcher(name, "threads=3"), key) == 3


def test_slurm_queues_a_job_again_well_before_its_limit() -> None:
    options = launcher("submitit_slurm")
    assert (options.signal_delay_s, options.max_num_timeout, options.array_parallelism) == (120, 100, 64)
