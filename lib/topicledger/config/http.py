"""HTTP requests that go only to the addresses in the settings."""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPMessage
from typing import IO
from urllib.parse import urlsplit

from topicledger.config.addresses import is_this_machine


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would send a secret to another address."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


class _NoProxyForThisMachine(urllib.request.ProxyHandler):
    """Uses the proxies of the environment, but not for this machine: an `http:` request would show its secret there."""

    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> object:
        return None if is_this_machine(urlsplit(req.full_url).hostname or "") else super().proxy_open(req, proxy, type)


def opener(ca_file: str | None = None) -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirect, and asks no proxy for this machine.

    It trusts the authorities in `ca_file` instead of the system's.
    """
    handlers: list[type[urllib.request.BaseHandler] | urllib.request.BaseHandler]
    handlers = [_NoRedirects, _NoProxyForThisMachine]
    if ca_file is not None:
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
    return urllib.request.build_opener(*handlers)
