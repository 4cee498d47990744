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
    holder = locks / f"{directory.name}.json"
    lock = filelock.FileLock(locks / f"{directory.name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise Held(f"{directory} is being written by {_holder_text(holder)}") from None
    try:
        replace_file(holder, json.dumps(_holder(command)).encode())
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _holder(command: str) -> dict[str, str | int]:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": now}


def _holder_text(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']} since {holder['since']} ({holder['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        # The holder has the lock and has not written down who it is yet.
        return "another process"
