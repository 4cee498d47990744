"""What became of one job, in a form that travels between processes."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal[
    "completed",
    "resumed",
    "skipped",
    "stopped",
    "diverged",
    "failed",
    "invalid",
    "interrupted",
    "held",
    "not started",
    "left",
]

SUCCESS: tuple[Kind, ...] = ("completed", "resumed", "skipped", "stopped")
FAILURE: tuple[Kind, ...] = ("diverged", "failed", "invalid", "held")
EXIT_CODES: dict[Kind, int] = {
    "completed": 0,
    "resumed": 0,
    "skipped": 0,
    "stopped": 0,
    "diverged": 1,
    "failed": 1,
    "invalid": 2,
    "held": 3,
    "interrupted": 130,
    "not started": 130,
    "left": 130,
}


@dataclass(frozen=True)
class Outcome:
    """`kind` of ending, the run directory it is about, and the reason where there is one."""

    kind: Kind
    directory: str
    reason: str = ""
    seconds: float = 0.0
    signal: int = 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else EXIT_CODES[self.kind]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
