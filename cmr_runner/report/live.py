"""The report as a page on this machine that follows the runs: it asks for their digest and reloads when it changes."""

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cmr_runner.report.page import asset

ADDRESS = "127.0.0.1"
POLICY = "default-src 'none';"


class LiveServer(ThreadingHTTPServer):
    """`page()` makes the report, `state()` a digest of the files it is made of. Loopback only."""

    daemon_threads = True

    def __init__(self, page: Callable[[], str], state: Callable[[], str], port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.page, self.state = page, state

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def own_names(self) -> set[str]:
        return {f"{name}:{self.server_address[1]}" for name in (ADDRESS, "localhost")}


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.own_names():  # another site's name that leads here
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            self._send("text/html", live(self.server.page, self.server.state()))
        elif self.path == "/state":
            self._send("text/plain", self.server.state())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, kind: str, text: str) -> None:
        content = text.encode()
        with suppress(ConnectionError):  # a browser that reloads leaves the old answer half read
            self._answer(kind, content)

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not worth a line each."""


def live(page: Callable[[], str], state: str) -> str:
    """The page, made after `state` was taken, with the script that watches for the next one."""
    html = page().replace(POLICY, f"{POLICY} connect-src 'self';")
    return html.replace("</body>", f"<script>{asset('live.js').replace('STATE', state)}</script>\n</body>")
