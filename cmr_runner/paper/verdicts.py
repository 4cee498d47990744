"""Whether a measurement reproduces a figure of the paper: one rule, stated in words and in code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cmr_runner.results.statistics import centre, t_interval

WITHIN, SAME_DIRECTION, NOT_REPRODUCED, NOT_RUN = "within", "same direction", "not reproduced", "not run"

LEAST_SEEDS = 3
ACCURACY_TOLERANCE = 5.0  # percentage points
FACTOR_TOLERANCE = 2.0  # κ and gradient norms

RULE = (
    f"A value is “{WITHIN}” if the paper's figure lies in our 95 % interval over seeds (Student's t, {LEAST_SEEDS} "
    "seeds or more; of the logarithms for κ and gradient norms), or within "
    f"±{ACCURACY_TOLERANCE:g} percentage points of our mean accuracy, or within a factor of {FACTOR_TOLERANCE:g} of "
    f"our geometric mean for κ and gradient norms. Otherwise it is “{SAME_DIRECTION}” if CMR differs from vanilla the "
    f"way the paper says, and else “{NOT_REPRODUCED}”. A claim about a shape states its own threshold in its row."
)


@dataclass(frozen=True)
class Verdict:
    kind: str
    basis: str = ""


def value_verdict(paper: float, measured: Sequence[float], *, log: bool, agrees: bool | None) -> Verdict:
    """The verdict on one figure of the paper.

    `measured` holds one value a seed. `log` says that the quantity lives on a logarithmic scale. `agrees` says whether
    the contrast of CMR and vanilla has the paper's sign; None where one of the two was not run.
    """
    values = [value for value in measured if math.isfinite(value)]
    if not values:
        return Verdict(NOT_RUN)
    middle = centre(values, log)
    low, high = t_interval(values, log)
    if len(values) >= LEAST_SEEDS and low <= paper <= high:
        return Verdict(WITHIN, "the interval holds the paper's figure")
    if log and 1 / FACTOR_TOLERANCE <= middle / paper <= FACTOR_TOLERANCE:
        return Verdict(WITHIN, f"within a factor of {FACTOR_TOLERANCE:g}")
    if not log and abs(middle - paper) <= ACCURACY_TOLERANCE:
        return Verdict(WITHIN, f"within ±{ACCURACY_TOLERANCE:g} points")
    if agrees:
        return Verdict(SAME_DIRECTION, "CMR against vanilla as in the paper")
    return Verdict(NOT_REPRODUCED, "" if agrees is not None else "the contrast was not run")


def shape_verdict(holds: bool, weakly: bool, basis: str = "") -> Verdict:
    """The verdict on a claim about a shape: as claimed, only its direction, or not at all."""
    if holds:
        return Verdict(WITHIN, basis)
    return Verdict(SAME_DIRECTION, basis) if weakly else Verdict(NOT_REPRODUCED, basis)
