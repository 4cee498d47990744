"""Several processes that train one model: who they are, what they tell each other, who computes which layer."""

from cmr_runner.distributed.ranks import Ranks

__all__ = ["Ranks"]
