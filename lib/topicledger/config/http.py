"""HTTP requests that go only to the addresses in the settings."""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPMessage
from typing import IO


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would send a secret to another address."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def opener(ca_file: str | None = None) -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirect, and trusts the authorities in `ca_file` instead of the system's."""
    if ca_file is None:
        return urllib.request.build_opener(_NoRedirects)
    context = ssl.create_default_context(cafile=ca_file)
    return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
