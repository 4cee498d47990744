"""A directory of verified files, filled from the first source that delivers.

A file appears under its name only whole and with the right checksum: it is written in a scratch directory beside,
checked there, then renamed. One process at a time fills a directory; the lock dies with its process.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import filelock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from cmr_runner.checks import ArgumentError
from cmr_runner.data.digests import has_digest
from cmr_runner.data.errors import DataError, SourceError

logger = logging.getLogger(__name__)


class Source(Protocol):
    label: str

    def fetch(self, names: Sequence[str], into: Path, progress: Progress) -> None:
        """Write the named files into a directory, as far as possible; SourceError where it stops."""


def unverified(directory: Path, digests: Mapping[str, str]) -> list[str]:
    """Names of the files that are absent or not what their checksum says."""
    return [name for name, digest in digests.items() if not _is_verified(directory / name, digest)]


def _is_verified(path: Path, digest: str) -> bool:
    try:
        return has_digest(path, digest)
    except OSError:
        return False


def ensure_files(
    title: str, directory: Path, digests: Mapping[str, str], sources: Callable[[], Sequence[Source]], advice: str
) -> None:
    """Return once `directory` holds every file of `digests` (name → checksum), verified.

    `sources` is called only when a file is missing. DataError when none of them helps.
    """
    if not unverified(directory, digests):
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(directory.parent / ".lock"):
            _fill(title, directory, digests, sources, advice)
    except OSError as error:
        reason = error.strerror or error
        raise ArgumentError("root", f"root: {title} cannot be kept under {directory}: {reason}") from error


def _fill(
    title: str, directory: Path, digests: Mapping[str, str], sources: Callable[[], Sequence[Source]], advice: str
) -> None:
    # Another process may have delivered while this one waited for the lock.
    missing = unverified(directory, digests)
    if not missing:
        return
    wrong = _set_aside(directory, missing)
    tried = [f"{directory}: wrong checksum, renamed to *.wrong: {', '.join(wrong)}"] if wrong else []
    console = Console(stderr=True)
    scratch = directory / ".partial"
    for source in sources():
        logger.info("%s: trying %s", title, source.label)
        shutil.rmtree(scratch, ignore_errors=True)  # also what a killed process left
        scratch.mkdir()
        failure = "delivered wrong files"
        try:
            with _progress(console) as progress:
                source.fetch(missing, scratch, progress)
        except SourceError as error:
            failure = str(error)
        finally:
            missing = _move_verified(missing, scratch, directory, digests)
            shutil.rmtree(scratch, ignore_errors=True)
        if not missing:
            return
        tried.append(f"{source.label}: {failure}")
    ways = [f"put {', '.join(missing)} (plain or .gz) into {directory} by hand", advice, "set another root"]
    todo = ", or ".join(way for way in ways if way)
    raise DataError(f"{title} could not be obtained. Tried {'; '.join(tried)}. You can {todo}.")


def _set_aside(directory: Path, missing: Sequence[str]) -> list[str]:
    """Rename wrong files, which may be a user's own and so are not deleted; their names."""
    wrong = [name for name in missing if (directory / name).exists()]
    for name in wrong:
        (directory / name).replace(directory / f"{name}.wrong")
    return wrong


def _move_verified(names: Sequence[str], scratch: Path, directory: Path, digests: Mapping[str, str]) -> list[str]:
    """Move the verified files to their place; the names of the others."""
    left = unverified(scratch, {name: digests[name] for name in names})
    for name in names:
        if name not in left:
            (scratch / name).replace(directory / name)
    return left


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
