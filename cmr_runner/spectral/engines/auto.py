"""The engine that is best where nothing else is known."""

from cmr_runner.spectral.engines.staggered import StaggeredEngine


class AutoEngine(StaggeredEngine):
    """`staggered`, which by the measurements of docs/engines.md is the quickest for layers of every size."""

    name = "auto"
