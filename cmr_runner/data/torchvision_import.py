"""torchvision, importable beside a CPU-only torch.

The usual torchvision wheel is built against CUDA: its compiled extension needs CUDA's libraries and does not load where
torch is a CPU build. The import then ends in "operator torchvision::nms does not exist", because torchvision attaches
Python code to operators that only the extension declares. Data sets and models such as resnet18 need none of them. So
when, and only when, the import fails that way, the schemas are declared here and the import is tried again; where the
extension does load, declaring them a second time would abort the process.
"""

import importlib
import sys
from types import ModuleType

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

# A Library takes its declarations back when it is collected: this name keeps them for the life of the process.
_declared: torch.library.Library | None = None


def import_torchvision() -> ModuleType:
    """The torchvision package; afterwards a plain `import torchvision` works as well."""
    global _declared
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if _declared is not None or "operator torchvision::nms does not exist" not in str(error):
            raise
    # The failed attempt leaves submodules behind that belong to a package object which is gone.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _declared = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        _declared.define(operator + _SCHEMA)
    return importlib.import_module("torchvision")
