"""Data inside one archive: an address on the web, and how every other source of archives hands its own on."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import Progress

from cmr_runner.data.digests import require_digest
from cmr_runner.data.sources.download import download

# (archive, names of the files to write, directory to write them into); SourceError where the archive is another.
Unpack = Callable[[Path, Sequence[str], Path], None]


class Archive:
    """The archive at a web address, used only with the right checksum."""

    def __init__(self, url: str, digest: str, unpack: Unpack) -> None:
        self.label, self.digest, self.unpack = url, digest, unpack

    def fetch(self, names: Sequence[str], into: Path, progress: Progress) -> None:
        with tempfile.TemporaryDirectory(dir=into) as directory:
            archive = self.obtain(Path(directory), progress)
            require_digest(archive, self.digest)
            self.unpack(archive, names, into)

    def obtain(self, directory: Path, progress: Progress) -> Path:
        path = directory / self.label.rpartition("/")[2]
        download(self.label, path, progress)
        return path
