"""The engine that is best where nothing else is known."""

from cmr_runner.spectral.engines.staggered import StaggeredEngine


class AutoEngine(StaggeredEngine):
    """`staggered`, which suits layers of every size."""

    name = "auto"
