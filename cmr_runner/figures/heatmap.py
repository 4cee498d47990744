"""A matrix as colours: sequential, even in grey, with the value written in each cell where there is room."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.image import AxesImage

COLORS = "cividis"  # even in lightness and read alike by colour-blind readers
MISSING = "#e8e8e8"


def color_scale(values: np.ndarray, log: bool, least: float = 0.0) -> Normalize:
    """A scale over the finite values that spans at least `least` (a difference, or a factor on a logarithmic scale);
    one value alone still gets a range."""
    finite = values[np.isfinite(values) & ((values > 0) | (not log))]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (1.0, 1.0)
    if log and least and high / low < least:
        low, high = low * (high / low / least) ** 0.5, high * (least / (high / low)) ** 0.5
    elif not log and high - low < least:
        low, high = high - least, high
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    return LogNorm(low, high) if log else Normalize(low, high)


def draw_matrix(axes: Axes, values: np.ndarray, scale: Normalize) -> AxesImage:
    """Rows from top to bottom. A cell without a value is grey."""
    axes.set_facecolor(MISSING)
    axes.grid(visible=False)
    return axes.imshow(np.ma.masked_invalid(values), norm=scale, cmap=COLORS, aspect="auto", interpolation="nearest")


def write_cells(axes: Axes, image: AxesImage, values: np.ndarray, form: str) -> None:
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            ink, text = ("white" if dark else "black"), format(value, form)
        else:
            ink, text = "#555555", "–"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
