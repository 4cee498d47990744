"""Files that are whole at every instant: written beside their final name, then renamed over it."""

import os
from pathlib import Path

TEMPORARY_MARK = ".tmp-"


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path` so that a reader, or a kill at any instant, meets the old file or the new one."""
    temporary = path.with_name(f".{path.name}{TEMPORARY_MARK}{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            # Without this a power cut after the rename could leave an empty file under the final name.
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames inside `directory` outlive a power cut, on systems that can open a directory."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def remove_temporaries(directory: Path) -> None:
    """Remove what a killed writer left half-written. Only for the one who holds the directory's lock."""
    for leftover in directory.glob(f".*{TEMPORARY_MARK}*"):
        leftover.unlink(missing_ok=True)
