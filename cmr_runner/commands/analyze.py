"""cmr-analyze: the spectra of saved weights."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmr_runner.commands.arguments import OneLineParser, exit_code

if TYPE_CHECKING:
    from cmr_runner.regularizers.spectral_table import SpectralTable

FILES = ("model.pt", "checkpoint.pt")  # of a run directory: the first that is there


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    return exit_code(parser.prog, lambda: show(parser, options))


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="cmr-analyze",
        description="One row per layer: κ, σ_max, σ_min, shape, stable rank, ρ_cond, ρ_moment, Chebyshev moments, "
        "exact and in float64.",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", type=Path, help="run directories (model.pt, else checkpoint.pt) or files"
    )
    parser.add_argument("--csv", action="store_true", help="CSV with every digit instead of a table")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw σ_min to σ_max of every layer, as .png or .pdf")
    parser.add_argument("--K", type=int, help="highest moment (default: the run's, or 5)")
    parser.add_argument("--eps", type=float, help="ε of ρ_cond and ρ_moment (default: the run's, or 1e-6)")
    parser.add_argument("--beta", type=float, help="β of ρ_moment's weights (default: the run's, or 0.15)")
    parser.add_argument(
        "--gram", choices=("short_side", "columns"), help="which Gram matrix the moments are of (default: the run's)"
    )
    parser.add_argument(
        "--conv",
        choices=("kernel", "operator"),
        default="kernel",
        help="of a convolution: its flattened kernel, or the operator it is with stride 1 and circular padding",
    )
    parser.add_argument("--conv-size", type=int, default=32, help="side of the operator's images (default: 32)")
    parser.add_argument("--include", nargs="*", metavar="PATTERN", help="only layers with such a name, as '*head*'")
    parser.add_argument("--exclude", nargs="*", metavar="PATTERN", help="no layers with such a name, as '*embed*'")
    return parser


def show(parser: OneLineParser, options: argparse.Namespace) -> int:
    import pandas as pd

    tables = []
    for path in options.paths:
        try:
            tables.append(table_of(path, options))
        except ValueError as error:
            parser.error(str(error))
    several = len(tables) > 1
    if options.plot:
        _draw(parser, options.plot, dict(zip(map(str, options.paths), tables, strict=True)))
    if options.csv:
        for path, table in zip(options.paths, tables, strict=True):
            if several:
                table.insert(0, "path", str(path))
        pd.concat(tables).to_csv(sys.stdout, index=False, lineterminator="\n")
        return 0
    for path, table in zip(options.paths, tables, strict=True):
        if several:
            print(f"{path}:")
        print(table)
    return 0


def _draw(parser: OneLineParser, file: Path, tables: dict[str, SpectralTable]) -> None:
    from cmr_runner.figures.layer_bars import layer_bars

    try:
        layer_bars(tables).savefig(file, dpi=150)
    except (OSError, ValueError) as error:
        parser.error(f"--plot {file}: {error}")


def table_of(path: Path, options: argparse.Namespace) -> SpectralTable:
    """The table of one run directory or file; ValueError where there is none to be had."""
    from cmr_runner.inits.checkpoint import read_state_dict
    from cmr_runner.regularizers import LayerRule, analyze
    from cmr_runner.regularizers.saved import module_of

    file, settings = _weights_of(path)
    saved: dict[str, Any] = settings.get("layers") or {}
    rule = LayerRule(
        include=saved.get("include", ()) if options.include is None else options.include,
        exclude=saved.get("exclude", ()) if options.exclude is None else options.exclude,
        min_side=saved.get("min_side", 2),
        split=saved.get("split"),
        heads=saved.get("heads") or False,
    )
    state = read_state_dict(file)
    table = analyze(
        module_of(state, orthogonal_map=settings.get("orthogonal_map", "cayley")),
        layers=rule,
        K=settings.get("K", 5) if options.K is None else options.K,
        eps=settings.get("eps", 1e-6) if options.eps is None else options.eps,
        beta=settings.get("beta", 0.15) if options.beta is None else options.beta,
        gram=options.gram or settings.get("gram", "short_side"),
        conv=options.conv,
        conv_size=options.conv_size,
    )
    if table.empty:
        why = f": {table.left_out}" if table.left_out else ""
        raise ValueError(f"PATH={path}: no weight with at least two dimensions is left to look at{why}")
    return table


def _weights_of(path: Path) -> tuple[Path, dict[str, Any]]:
    """The file of weights, and the regulariser's settings where a run.json tells them."""
    if not path.is_dir():
        return path, {}
    file = next((path / name for name in FILES if (path / name).is_file()), None)
    if file is None:
        raise ValueError(f"PATH={path}: no {' or '.join(FILES)} in it")
    try:
        record = json.loads((path / "run.json").read_text(encoding="utf-8"))
        return file, dict(record["config"]["regularizer"])
    except (OSError, ValueError, KeyError, TypeError):
        return file, {}


if __name__ == "__main__":
    sys.exit(main())
