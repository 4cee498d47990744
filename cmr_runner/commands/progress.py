"""What a person sees of a run: the plan, then a live line or one line per epoch, then a short table."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO, cast

from cmr_runner.commands.streams import Forgiving, say
from cmr_runner.results.quantities import MEAN_MOMENT
from cmr_runner.results.text_table import aligned
from cmr_runner.runs.columns import METRICS
from cmr_runner.runs.listener import Beginning, Listener, Row
from cmr_runner.runs.records import Records

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from cmr_runner.commands.sweep_line import SweepLine
    from cmr_runner.training.loop import StepView

REFRESH_SECONDS = 0.25  # between looks at the loss: reading it waits for the step to finish
TABLE_COLUMNS = {
    "epoch": "epoch",
    "train_loss": "train loss",
    "test_accuracy": "test accuracy",
    "grad_norm": "gradient norm",
    "kappa_mean": "mean κ",
    MEAN_MOMENT.column: MEAN_MOMENT.heading,
    "seconds": "seconds",
}


class Progress(Listener):
    """`mode` is live, lines or none; auto is live on a terminal. `prefix` tells side-by-side jobs apart; the line of
    the `sweep` that the job is one of stands below its bar."""

    def __init__(
        self,
        mode: str,
        *,
        prefix: str = "",
        alone: bool = True,
        debug: bool = False,
        sweep: SweepLine | None = None,
    ) -> None:
        if mode == "auto":
            mode = "live" if alone and sys.stdout.isatty() else "lines"
        self.mode, self.prefix, self.debug, self.sweep = mode, prefix, debug, sweep
        self._bar: Bar | None = None
        self._task: Any = None
        self._run: Beginning
        self._next_look = 0.0
        self._last_epoch = ""

    def warn(self, text: str) -> None:
        say(f"{self.prefix}warning: {text}", sys.stderr)

    def trace(self, error: BaseException) -> None:
        if self.debug:
            traceback.print_exception(error, file=sys.stderr)

    def begin(self, run: Beginning) -> None:
        self._run = run
        if self.mode == "none":
            return
        choices = run.choices
        self._say(
            f"{run.directory.name}: {choices.get('regularizer')} on {choices.get('model')}, "
            f"{choices.get('dataset')}, {run.epochs} epochs of {run.steps_per_epoch} steps, "
            f"{run.device}, threads={run.threads}"
        )
        if not self.prefix:
            for line in plan_lines(run.plan):
                self._say(f"  {line}")
        if run.resumed_from is not None:
            self._say(f"resumed after epoch {run.resumed_from} of {run.epochs}")
        if self.mode == "live":
            done = (run.resumed_from or 0) * run.steps_per_epoch
            self._bar = _bar(self.sweep)
            self._task = self._bar.add_task("", total=None, completed=done, figures="", epoch="")
            self._bar.start()

    def step(self, view: StepView) -> None:
        if self._bar is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + REFRESH_SECONDS
        done = (view.epoch - 1) * view.steps + view.step
        figures = f"loss {float(view.loss):.4f}{self._last_epoch}"
        epoch = f"epoch {view.epoch}/{self._run.epochs}"
        self._bar.update(self._task, completed=done, total=self._run.epochs * view.steps, figures=figures, epoch=epoch)

    def epoch(self, metrics: Row, layers: Sequence[Row]) -> None:
        results = f"accuracy {_percent(metrics.get('test_accuracy'))}  mean κ {_short(metrics.get('kappa_mean'))}"
        self._last_epoch = f"  after epoch {metrics['epoch']}: {results}"
        if self.mode == "none":
            return
        loss = metrics.get("train_loss")
        trained = f"loss {loss:.4f}  " if loss is not None else ""
        line = f"epoch {metrics['epoch']}/{self._run.epochs}  {trained}{results}  {metrics['seconds']:.1f} s"
        if self._bar is not None:
            self._bar.console.print(line, highlight=False)
        else:
            self._say(line)

    def end(self, status: str, reason: str) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if status not in ("completed", "stopped"):
            return
        if not self.prefix and self.mode != "none":
            say("\n" + epoch_table(self._run.records))
        if not self.prefix or self.mode != "none":
            self._say(f"files: {self._run.directory}")

    def _say(self, text: str) -> None:
        say(f"{self.prefix}{text}")


def _bar(sweep: SweepLine | None = None) -> Bar:
    # Imported where it is needed: most runs write to a file and need no terminal.
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Rate(TextColumn):
        def render(self, task: Any) -> Any:
            speed = task.finished_speed or task.speed
            self.text_format = f"{speed:.0f} steps/s" if speed else ""
            return super().render(task)

    class BarAndSweep(RichProgress):
        def get_renderables(self) -> Iterable[Any]:
            yield from super().get_renderables()
            if sweep is not None:
                yield Text(sweep.text, no_wrap=True, overflow="ellipsis")

    return BarAndSweep(
        TextColumn("{task.fields[epoch]}"),
        BarColumn(bar_width=24),
        Rate(""),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
        console=Console(file=cast(TextIO, Forgiving(sys.stdout))),
        transient=True,
        refresh_per_second=4,
    )


def plan_lines(plan: Sequence[Any]) -> list[str]:
    """Which layers are treated how, runs of equal ones on one line."""
    lines = []
    for (shape, method), group in groupby(plan, key=lambda row: (tuple(row[1]), row[2])):
        rows = list(group)
        names = rows[0][0] if len(rows) == 1 else f"{rows[0][0]} … {rows[-1][0]}"
        lines.append(f"{len(rows):3d} × {shape[0]} × {shape[1]}  {method}  ({names})")
    return lines


def epoch_table(records: Records) -> str:
    """metrics.csv in short, as aligned text."""
    rows = [[_cell(name, row.get(name, "")) for name in TABLE_COLUMNS] for row in records.rows(METRICS)]
    heads = list(TABLE_COLUMNS.values())
    return aligned(heads, rows, right=heads)


def _cell(name: str, cell: str) -> str:
    if cell == "" or name == "epoch":
        return cell
    return _percent(float(cell)) if name == "test_accuracy" else _short(float(cell))


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.2f} %"


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
