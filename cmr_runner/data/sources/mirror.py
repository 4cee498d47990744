"""A web mirror that serves gzipped files."""

from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from cmr_runner.data.sources.download import SECONDS, download
from cmr_runner.data.sources.installed import unzip


class Mirror:
    """Files `<url><name>.gz`."""

    def __init__(self, url: str, seconds: float = SECONDS) -> None:
        self.label = url
        self.seconds = seconds

    def fetch(self, names: Sequence[str], into: Path, progress: Progress) -> None:
        for name in names:
            packed = into / f"{name}.gz"
            download(f"{self.label}{name}.gz", packed, progress, self.seconds)
            unzip(packed, into / name)
            packed.unlink()
