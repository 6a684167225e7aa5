"""Moto's S3 and DynamoDB on a free port, in moto's own environment: serve.py ADDRESS_FILE LOG [OPTION...].

Writes its address to ADDRESS_FILE when it listens, and a line for each request to LOG: method, path, If-None-Match and
status. Ends when its standard input ends.

--unconditional  ignores If-None-Match, as older stores do
--lose-answers   carries out every third commit of Delta, but answers 503

Moto checks whether an object exists and then writes it, in a thread for each request, so that two simultaneous
conditional writes can both succeed. S3 has no such gap, so requests that write are serialised.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Storage:
    """The application, made as atomic as S3, with the faults that the options request."""

    def __init__(self, log: Path, options: list[str]) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._log = log.open("a", encoding="utf-8", buffering=1)
        self._writing = threading.Lock()
        self._options = options
        self._commits = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if "--unconditional" in self._options:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        condition = environ.get("HTTP_IF_NONE_MATCH", "-")
        told = ["-"]

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            told.append(status.split(" ")[0])
            return None if lost else start_response(status, headers, *rest)

        if method in ("GET", "HEAD"):
            lost = False
            answer = self._application(environ, start)
        else:
            with self._writing:
                lost = "--lose-answers" in self._options and condition == "*" and "_delta_log" in path and self._third()
                answer = self._application(environ, start)
        self._log.write(f"{method} {path} {condition} {'lost' if lost else told[-1]}\n")
        if lost:
            start_response("503 Slow Down", [("Content-Length", "0")])
            return []
        return answer

    def _third(self) -> bool:
        self._commits += 1
        return self._commits % 3 == 0


class Quiet(WSGIRequestHandler):
    """Keeps connections open, as S3 does, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: object) -> None:
        return


def main(address_file: Path, log: Path, options: list[str]) -> None:
    server = make_server("127.0.0.1", 0, Storage(log, options), threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    written = address_file.with_suffix(".part")
    written.write_text(f"http://127.0.0.1:{server.port}", encoding="utf-8")
    written.rename(address_file)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
