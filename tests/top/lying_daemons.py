"""Processes at a daemon's socket that answer anything."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

from brickd.base.paths import runtime


def body(text: bytes | str) -> bytes:
    """Return an answer with this body."""
    text = text.encode() if isinstance(text, str) else text
    return b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)


@contextlib.contextmanager
def lying(answer: Callable[[str], bytes]) -> Iterator[list[str]]:
    """Listen at the daemon's socket; `answer` makes the answer to a path. Yield the paths that were asked for."""
    asked: list[str] = []
    with socket.socket(socket.AF_UNIX) as listener:
        path = runtime().socket
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        listener.bind(os.fspath(path))
        listener.listen(16)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        asked.append(connection.recv(1 << 16).split()[1].decode().partition("?")[0])
                        connection.sendall(answer(asked[-1]))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            path.unlink()
