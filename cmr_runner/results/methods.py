"""How a method looks everywhere: its label, and a colour, marker and line style that hold without the others.

Colours are Okabe and Ito's, which colour-blind readers can distinguish; marker and dash are the second cue, for print
in grey.
"""

from dataclasses import dataclass
from itertools import chain, cycle

PAPER = {"none": "vanilla", "l2": "L2", "spectral_norm": "SN", "cmr": "CMR", "spectral_norm_cmr": "SN + CMR"}
PAPER_METHODS = tuple(PAPER)
LABELS = PAPER | {
    "cmr_cond": "CMR, ρ_cond only",
    "cmr_moment": "CMR, ρ_moment only",
    "cmr_learned": "CMR, learned weights",
    "cmr_by_head": "CMR by head",
    "spectral_penalty": "spectral penalty",
    "soft_orthogonality": "soft orthogonality",
    "srip": "SRIP",
    "almost_isometry": "almost isometry",
    "sigma_one": "σ_max to 1",
}


@dataclass(frozen=True)
class Look:
    color: str
    marker: str
    dash: str


BLUE, GREEN, PURPLE, ORANGE, VERMILION = "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#D55E00"
SKY, GREY, BLACK = "#56B4E9", "#777777", "#000000"
PALE = "#C4C4C4"  # what stands behind the curves that are meant

LOOKS = {
    "none": Look(BLUE, "o", "--"),
    "l2": Look(GREEN, "^", "-."),
    "spectral_norm": Look(PURPLE, "v", ":"),
    "cmr": Look(ORANGE, "s", "-"),
    "spectral_norm_cmr": Look(VERMILION, "D", "-"),
}
SPARE_COLORS = (SKY, GREEN, PURPLE, VERMILION, BLACK, GREY, BLUE, ORANGE)
SPARE_MARKERS = ("P", "X", "<", ">", "h", "*", "d", "p", "8")
SPARE_DASHES = ("-", "--", "-.", ":")


def method_label(method: str) -> str:
    return LABELS.get(method, method)


def method_rank(method: str) -> tuple[int, str]:
    """Sorts the paper's methods first, in the paper's order."""
    return (PAPER_METHODS.index(method) if method in PAPER else len(PAPER), method)


def looks(methods: list[str]) -> list[Look]:
    """A look for each curve of one picture: the method's own for its first curve, spare ones for all others."""
    taken = [LOOKS[method] for method in dict.fromkeys(methods) if method in LOOKS]
    used = {look.color for look in taken}
    free = [color for color in SPARE_COLORS if color not in used]
    colors = chain(free, cycle(SPARE_COLORS))
    markers, dashes = cycle(SPARE_MARKERS), cycle(SPARE_DASHES)
    seen: set[str] = set()
    result = []
    for method in methods:
        if method in LOOKS and method not in seen:
            result.append(LOOKS[method])
        else:
            result.append(Look(next(colors), next(markers), next(dashes)))
        seen.add(method)
    return result
