"""A web server for one test."""

import contextlib
import http.server
import threading
from pathlib import Path


@contextlib.contextmanager
def web(directory: Path, cut: int = 0):
    """A local web server; it announces whole files and sends `cut` bytes fewer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = directory / self.path.lstrip("/")
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file():
                self.send_error(404)
                return
            content = path.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - cut])

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
