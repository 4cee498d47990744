"""Files that are on this machine already, plain or gzipped."""

import gzip
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from cmr_runner.data.errors import SourceError


def unzip(packed: Path, path: Path) -> None:
    try:
        with gzip.open(packed, "rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SourceError(f"{packed.name} is truncated or no gzip file") from error
    except OSError as error:
        raise SourceError(f"{packed.name}: {error.strerror or error}") from error


class Installed:
    """Files `<directory>/<name>` or `<directory>/<name>.gz`."""

    def __init__(self, directory: Path, hint: str = "") -> None:
        self.directory = directory
        self.label = f"{directory} {hint}".rstrip()

    def fetch(self, names: Sequence[str], into: Path, progress: Progress) -> None:
        absent = []
        for name in progress.track(names, description=str(self.directory)):
            plain, packed = self.directory / name, self.directory / f"{name}.gz"
            if plain.is_file():
                self._copy(plain, into / name)
            elif packed.is_file():
                unzip(packed, into / name)
            else:
                absent.append(name)
        if absent:
            raise SourceError(f"has no {', '.join(absent)}")

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            raise SourceError(f"{source.name}: {error.strerror or error}") from error
