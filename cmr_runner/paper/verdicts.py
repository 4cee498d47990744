"""Whether a measurement reproduces what the paper reports: one rule, stated in words and in code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cmr_runner.results.statistics import LEAST_SEEDS, centre, t_interval

WITHIN, CLOSE, HOLDS = "within", "close", "holds"
SAME_DIRECTION, NOT_REPRODUCED, NOT_RUN = "same direction", "not reproduced", "not run"

ACCURACY_TOLERANCE = 5.0  # percentage points
FACTOR_TOLERANCE = 2.0  # κ and gradient norms

RULE = (
    f"A value is “{WITHIN}” if the paper's value lies in our 95 % interval over seeds (Student's t, {LEAST_SEEDS} "
    "seeds or more; of the logarithms for κ and gradient norms), and only then. It is "
    f"“{CLOSE}” if it lies outside, but within ±{ACCURACY_TOLERANCE:g} percentage points of our mean accuracy, or "
    f"within a factor of {FACTOR_TOLERANCE:g} of our geometric mean. Otherwise it is “{SAME_DIRECTION}” if CMR differs "
    f"from vanilla the way the paper says, and else “{NOT_REPRODUCED}”. A claim about a shape “{HOLDS}” by the "
    "threshold that its row states. Only runs in the paper's own setting get a verdict."
)


@dataclass(frozen=True)
class Verdict:
    kind: str
    basis: str = ""

    @property
    def text(self) -> str:
        """The verdict as every table prints it: what is only close says how close."""
        return f"{self.kind} ({self.basis})" if self.kind == CLOSE else self.kind


def value_verdict(paper: float, measured: Sequence[float], *, log: bool, agrees: bool | None) -> Verdict:
    """The verdict on one value of the paper.

    `measured` holds one value per seed. `log` says that the quantity lives on a logarithmic scale. `agrees` says
    whether the contrast of CMR and vanilla has the paper's sign; None where one of the two was not run.
    """
    values = [value for value in measured if math.isfinite(value)]
    if not values:
        return Verdict(NOT_RUN)
    middle = centre(values, log)
    low, high = t_interval(values, log)
    if low <= paper <= high:
        return Verdict(WITHIN, "the interval holds the paper's value")
    if log and 1 / FACTOR_TOLERANCE <= middle / paper <= FACTOR_TOLERANCE:
        return Verdict(CLOSE, f"within a factor of {FACTOR_TOLERANCE:g}")
    if not log and abs(middle - paper) <= ACCURACY_TOLERANCE:
        return Verdict(CLOSE, f"within ±{ACCURACY_TOLERANCE:g} points")
    if agrees:
        return Verdict(SAME_DIRECTION, "CMR against vanilla as in the paper")
    return Verdict(NOT_REPRODUCED, "" if agrees is not None else "the contrast was not run")


def shape_verdict(holds: bool, weakly: bool, basis: str = "") -> Verdict:
    """The verdict on a claim about a shape: as claimed, only its direction, or not at all."""
    if holds:
        return Verdict(HOLDS, basis)
    return Verdict(SAME_DIRECTION, basis) if weakly else Verdict(NOT_REPRODUCED, basis)
