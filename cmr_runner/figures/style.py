"""One look for all figures: sizes for a paper's column, type of 7 points and more, and bytes that do not change."""

import hashlib
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from cmr_runner.runs.atomic import replace_file

COLUMN = 3.4  # inches: one column of a two-column paper
PAGE = 6.9
PANEL_HEIGHT = 2.1
NOTE_SIZE = 7.0
LONGEST_NAME = 60  # characters of a file name
LONGEST_LABEL = 28  # characters along a panel's height
FRAME_DPI, FRAME_MILLISECONDS = 110, 500
LINE = 0.135  # inches a line of a note or legend takes
# Steps within a decade for an axis that spans more than so many decades.
TICK_STEPS: tuple[tuple[float, tuple[float, ...]], ...] = (
    (0.7, (1.0, 2.0, 5.0)),
    (0.35, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
)

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine draws the same
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,  # TrueType: text stays text, as publishers ask
    "svg.hashsalt": "cmr_runner",
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.05,
}

# Nothing of the clock or the library's version goes into a file.
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Creator": None, "Date": None},
}


@dataclass(frozen=True)
class Drawing:
    """A picture, its file's stem, and what a reader must be told to read it. `frames` make an animation instead."""

    stem: str
    figure: Figure | None
    note: str
    frames: tuple[Figure, ...] = ()


@contextmanager
def house_style() -> Iterator[None]:
    with matplotlib.rc_context(RC):  # type: ignore[arg-type]
        yield


def new_figure(width: float = COLUMN, height: float = PANEL_HEIGHT) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def finish(figure: Figure, note: str) -> None:
    """Put the note below, wrapped to the figure's width; the figure grows by its lines."""
    wrapped = textwrap.fill(note, int(figure.get_figwidth() * 17.5))
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=NOTE_SIZE, color="#444444")
    _grow(figure, wrapped.count("\n") + 1)


def first_of(shown: int, found: int, what: str = "groups") -> str:
    """What a note adds where not all that was found is drawn."""
    return f" The first {shown} of {found} {what}." if shown < found else ""


def legend_above(figure: Figure, axes: Axes) -> None:
    """One legend for all panels, outside of the data, in as many columns as the width takes."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    # At 7.5 pt a character takes about 0.062 in, the line sample and the gap 0.55 in.
    widest = max(map(len, labels)) * 0.062 + 0.55
    columns = max(1, min(len(handles), int(figure.get_figwidth() / widest)))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, columnspacing=1.2)
    _grow(figure, -(-len(handles) // columns))


def name_y(axes: Axes, text: str) -> None:
    """A label of the y axis that is no longer than a panel is high."""
    axes.set_ylabel(textwrap.fill(text, LONGEST_LABEL))


def epoch_axis(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.set_xlim(left=min(0.0, axes.dataLim.x0) - 0.04 * max(axes.dataLim.x1, 1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))


def log_axis(axes: Axes, which: str = "y") -> None:
    """A log scale whose ticks are readable also when the data spans less than two decades, or more than eight."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    axes.set(**{f"{which}scale": "log"})
    axis: Axis = axes.yaxis if which == "y" else axes.xaxis
    low, high = axis.get_view_interval()
    decades = abs(_log10(high) - _log10(low))
    if decades > 2.5:
        axes.minorticks_off()  # hardly seen at this size, and each one costs time
    if decades > 8:
        axis.set_major_locator(LogLocator(numticks=7))
    elif decades < 2:
        fine = next((steps for least, steps in TICK_STEPS if decades > least), None)
        axes.minorticks_off()
        # Over a small factor a logarithmic axis is nearly linear, and even steps are read best.
        axis.set_major_locator(LogLocator(subs=fine) if fine else MaxNLocator(nbins=5))
        axis.set_major_formatter(lambda value, _: f"{value:g}")


def stem_of(name: str, distinction: str) -> str:
    """A picture's name, and what sets its runs apart from the others of its experiment."""
    return f"{name}-{distinction}" if distinction else name


def slug(text: str) -> str:
    """A short file name: letters, digits, `.=_-` only; a long one is cut, and its digest keeps it unique."""
    name = re.sub(r"[^\w.=-]+", "-", text, flags=re.ASCII).strip("-.") or "unnamed"
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9].rstrip('-.=')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def save(drawing: Drawing, out: Path, folder: str, stem: str, formats: tuple[str, ...], dpi: int) -> list[Path]:
    """Write the picture in each format; a reader never meets half a file."""
    directory = out / slug(folder)
    directory.mkdir(parents=True, exist_ok=True)
    if drawing.figure is None:
        path = directory / f"{slug(stem)}.gif"
        replace_file(path, animation(drawing.frames))
        return [path]
    figure = drawing.figure
    figure.set_dpi(dpi)
    # Solving the layout is the slow part: once for all formats.
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine("none")
    paths = [directory / f"{slug(stem)}.{extension}" for extension in formats]
    for path in paths:
        buffer = io.BytesIO()
        _print(figure, buffer, path.suffix[1:])
        replace_file(path, buffer.getvalue())
    return paths


def animation(frames: Sequence[Figure]) -> bytes:
    """An endless GIF of the frames, the last one held."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    images = []
    for figure in frames:
        figure.set_dpi(FRAME_DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).quantize(64))
    buffer = io.BytesIO()
    times = [FRAME_MILLISECONDS] * (len(images) - 1) + [4 * FRAME_MILLISECONDS]
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=times, loop=0)
    return buffer.getvalue()


def _grow(figure: Figure, lines: int) -> None:
    figure.set_figheight(figure.get_figheight() + LINE * lines)


def _print(figure: Figure, file: io.BytesIO, kind: str) -> None:
    # The canvases' own print methods: Figure.savefig lays the figure out again for each file.
    if kind == "png":
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        FigureCanvasAgg(figure).print_png(file, metadata=METADATA[kind])
    elif kind == "pdf":
        from matplotlib.backends.backend_pdf import FigureCanvasPdf

        FigureCanvasPdf(figure).print_pdf(file, metadata=METADATA[kind])
    else:
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        FigureCanvasSVG(figure).print_svg(file, metadata=METADATA[kind])


def _log10(value: float) -> float:
    from math import log10

    return log10(value) if value > 0 else 0.0
