"""A web mirror that serves gzipped files, asked with a deadline."""

import http.client
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from cmr_runner.data.errors import SourceError
from cmr_runner.data.sources.installed import unzip

_CHUNK = 1 << 16


class Mirror:
    """Files `<url><name>.gz`."""

    def __init__(self, url: str, seconds: float = 5.0) -> None:
        self.label = url
        self.seconds = seconds

    def fetch(self, names: Sequence[str], into: Path, progress: Progress) -> None:
        for name in names:
            packed = into / f"{name}.gz"
            self._download(f"{self.label}{name}.gz", packed, progress)
            unzip(packed, into / name)
            packed.unlink()

    def _download(self, url: str, path: Path, progress: Progress) -> None:
        try:
            with _answer(url, self.seconds) as response, path.open("wb") as file:
                length = response.headers.get("Content-Length", "")
                task = progress.add_task(path.name, total=int(length) if length.isdigit() else None)
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    progress.advance(task, len(chunk))
        except urllib.error.HTTPError as error:
            raise SourceError(f"answered {error.code} {error.reason} for {path.name}") from error
        except urllib.error.URLError as error:
            raise SourceError(f"not reachable ({error.reason})") from error
        except (OSError, http.client.HTTPException) as error:
            raise SourceError(f"{path.name}: {error or type(error).__name__}") from error


def _answer(url: str, seconds: float) -> Any:
    """The open response, or an error within `seconds`.

    A socket's time-out bounds one connection attempt, but neither the look-up of the name nor the number of addresses
    tried in turn, which together make minutes of a closed network. So the request is made on a thread that is left
    behind when it is late.
    """
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urllib.request.urlopen(url, timeout=seconds))
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
