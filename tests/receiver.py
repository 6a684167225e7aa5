"""A server on this machine that receives what is posted, and answers as a test wants it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """A posted request."""

    url: str
    posts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Content type and body of each."""


@contextmanager
def receiver(answer: Callable[[BaseHTTPRequestHandler], None] | None = None) -> Iterator[Receiver]:
    """A server for as long as the context lasts; by default it answers 204."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.posts.append((self.headers["Content-Type"], json.loads(body)))
            if answer is not None:
                answer(self)
                return
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received = Receiver(url=f"http://127.0.0.1:{server.server_address[1]}/hook-s3cret")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
