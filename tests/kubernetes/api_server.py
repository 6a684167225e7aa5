"""As much of Kubernetes' API as spark-submit asks: it keeps what it is sent, and says of each Pod how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import yaml

Document = dict[str, Any]


class ApiServer:
    """Keeps every object that it was sent.

    `exit_code` is how each Pod's first container ended; None: the Pod was deleted while it ran. A second one
    ended well.
    """

    def __init__(self, address: str, exit_code: int | None) -> None:
        self.address = address
        self.exit_code = exit_code
        self.objects: dict[tuple[str, str], Document] = {}
        """By kind and name."""
        self.requests: list[str] = []
        self.made = Event()

    def keep(self, document: Document) -> Document:
        """The object as a server returns it."""
        metadata = document.setdefault("metadata", {})
        metadata |= {"uid": f"uid-{len(self.objects)}", "resourceVersion": "1"}
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self.objects[document["kind"], metadata["name"]] = document
        return document

    def of_kind(self, kind: str) -> list[Document]:
        return [each for (named, _), each in self.objects.items() if named == kind]

    def ended(self, pod: Document) -> Document:
        """The Pod, when its containers have ended, or as it was when it was deleted."""

        def container(name: str, state: Document) -> Document:
            return {"name": name, "state": state, "image": "i", "restartCount": 0}

        def terminated(code: int) -> Document:
            return {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}

        name = pod["spec"]["containers"][0]["name"]
        if self.exit_code is None:
            running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            return {**pod, "status": {"phase": "Running", "containerStatuses": [container(name, running)]}}
        phase = "Succeeded" if self.exit_code == 0 else "Failed"
        both = [container(name, terminated(self.exit_code)), container("vault-agent", terminated(0))]
        return {**pod, "status": {"phase": phase, "containerStatuses": both}}


@contextmanager
def api_server(exit_code: int | None) -> Iterator[ApiServer]:
    """Within it the server listens on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, query = urlsplit(self.path)[2:4]
            server.requests.append(f"GET {self.path}")
            kind = {"pods": "Pod", "configmaps": "ConfigMap", "services": "Service"}
            *_, plural, last = path.split("/")
            if "watch=true" in query:
                (pod,) = server.of_kind("Pod")
                event = "MODIFIED" if server.exit_code is not None else "DELETED"
                self.answer(json.dumps({"type": event, "object": server.ended(pod)}) + "\n")
            elif plural in kind:
                found = server.objects.get((kind[plural], last))
                found = server.ended(found) if found and plural == "pods" else found
                missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
                self.answer(json.dumps(found or missing), 200 if found else 404)
            else:
                items = [server.ended(each) for each in server.of_kind(kind.get(last, ""))]
                of_list = {
                    "kind": f"{kind.get(last, '')}List",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": "1"},
                }
                self.answer(json.dumps({**of_list, "items": items}))

        def do_POST(self) -> None:
            server.requests.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(json.dumps(server.keep(yaml.safe_load(body))), 201 if self.command == "POST" else 200)

        do_PATCH = do_POST  # noqa: N815  # what the base class calls

        def answer(self, text: str, status: int = 200) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: `requests` has them."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = ApiServer(f"http://127.0.0.1:{http.server_port}", exit_code)
        thread = Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
