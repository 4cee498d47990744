"""Rows as aligned text for a terminal, and as Markdown."""

import unicodedata
from collections.abc import Collection, Sequence


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Columns padded to their widest cell, two spaces apart; those whose heads are in `right` stand to the right."""
    widths = [max(map(_width, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["─" * width for width in widths], *rows]
    sides = [head in right for head in header]
    return "\n".join("  ".join(map(_padded, line, widths, sides)).rstrip() for line in lines)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in lines)


def _padded(cell: str, width: int, right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if right else cell + space


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(not unicodedata.combining(character) for character in text)


def _escaped(cell: str) -> str:
    # Pipes end a cell, and angle brackets would be read as HTML.
    cell = " ".join(cell.split())
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
