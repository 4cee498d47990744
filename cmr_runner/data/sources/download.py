"""One file from the web, asked for with a deadline."""

import http.client
import queue
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from rich.progress import Progress

from cmr_runner.data.errors import SourceError

_CHUNK = 1 << 16
SECONDS = 5.0


def download(address: str | urllib.request.Request, path: Path, progress: Progress, seconds: float = SECONDS) -> None:
    """Write what an address holds to `path`; SourceError where that fails or the answer is cut short."""
    try:
        with _answer(address, seconds) as response, path.open("wb") as file:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            task = progress.add_task(path.name, total=total)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                progress.advance(task, len(chunk))
            if total is not None and file.tell() < total:
                raise SourceError(f"{path.name}: the connection ended after {file.tell()} of {total} bytes")
    except urllib.error.HTTPError as error:
        raise SourceError(f"answered {error.code} {error.reason} for {path.name}") from error
    except urllib.error.URLError as error:
        raise SourceError(f"not reachable ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(f"{path.name}: {error or type(error).__name__}") from error


def _answer(address: str | urllib.request.Request, seconds: float) -> Any:
    """The open response, or an error within `seconds`.

    A socket's time-out bounds one connection attempt, but neither the look-up of the name nor the number of addresses
    tried in turn, which together make minutes of a closed network. So the request is made on a thread that is left
    behind when it is late.
    """
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urllib.request.urlopen(address, timeout=seconds))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise SourceError(f"no answer within {seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
