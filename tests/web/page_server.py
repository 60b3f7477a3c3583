"""Serves the files of the web page, and forwards requests for data to a daemon's socket."""

from __future__ import annotations

import mimetypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from conftest import ROOT
from serving import connected, request

STATIC = ROOT / "brickd" / "web" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@contextmanager
def page_serving(path: Path) -> Iterator[str]:
    """Yield the address of the page of the daemon with the socket at `path`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._forward() if self.path.startswith("/v1/") else self._file()

        def _forward(self) -> None:
            with connected(path) as daemon:
                daemon.settimeout(None)
                # With HTTP/1.0, the daemon sends no chunks, and closes the connection at the end.
                daemon.sendall(request(self.path).replace(b"HTTP/1.1", b"HTTP/1.0"))
                while piece := daemon.recv(1 << 16):
                    self.wfile.write(piece)

        def _file(self) -> None:
            name = self.path.partition("?")[0]
            file = STATIC / ("index.html" if name == "/" else name.removeprefix("/web/"))
            if STATIC not in file.resolve().parents or not file.is_file():
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", f"{mimetypes.guess_type(file.name)[0]}; charset=utf-8")
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(file.read_bytes())

        def log_message(self, format: str, *of: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
