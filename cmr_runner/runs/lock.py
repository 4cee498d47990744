"""One writer to a run directory: a lock that the system drops with the process that holds it."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import filelock

from cmr_runner.runs.atomic import replace_file

LOCKS = ".locks"

Holder = dict[str, str | int]


class Held(Exception):
    """Another process writes this run directory; the message says which."""


@contextlib.contextmanager
def run_lock(directory: Path, command: str) -> Iterator[None]:
    """Hold `directory` for writing, or raise `Held` at once.

    The lock lies beside the directory, not in it: `force=true` moves the directory away under it. It is never
    unlinked, since two processes could then lock two files of one name; the kernel frees it when its process dies.
    """
    locks = directory.parent / LOCKS
    locks.mkdir(parents=True, exist_ok=True)
    note = _note(directory)
    lock = filelock.FileLock(locks / f"{directory.name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise Held(f"{directory} is being written by {_text(holder(directory))}") from None
    try:
        replace_file(note, json.dumps(_this_process(command)).encode())
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def holder(directory: Path) -> Holder | None:
    """Who wrote down that it writes this run directory. One that was killed has left its word behind."""
    try:
        found = json.loads(_note(directory).read_text(encoding="utf-8"))
        return {key: found[key] for key in ("pid", "host", "command", "since")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _note(directory: Path) -> Path:
    return directory.parent / LOCKS / f"{directory.name}.json"


def _this_process(command: str) -> Holder:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": now}


def _text(found: Holder | None) -> str:
    if found is None:
        return "another process"  # it has the lock and has not written down who it is yet
    return f"process {found['pid']} on {found['host']} since {found['since']} ({found['command']})"
