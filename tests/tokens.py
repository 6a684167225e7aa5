"""Token providers for SASL/OAUTHBEARER, as users write them: settings name the factory. And a token endpoint."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kafka.net.sasl.oauth import AbstractTokenProvider

USER = "creator"
SECRET = "s3cr3t-of-the-provider"
"""The text that errors of failing providers quote."""

failing = False
"""Whether the providers of `failing_here` fail in this process; a test sets it for its own."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Makes tokens that nobody signed, which a broker that isn't told of any keys takes (KIP-255)."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def token(self) -> str:
        """Return a token that expires in this many seconds."""
        now = time.time()
        claims = {"sub": USER, "iat": min(now, now + self._seconds) - 60, "exp": now + self._seconds}
        return ".".join([_encoded({"alg": "none"}), _encoded(claims), ""])


def valid() -> TokenProvider:
    return TokenProvider(3600)


def expired() -> TokenProvider:
    return TokenProvider(-3600)


class FailingProvider(TokenProvider):
    """Makes this many valid tokens, then none."""

    def __init__(self, tokens: int) -> None:
        super().__init__(3600)
        self._left = tokens

    def token(self) -> str:
        if not self._left:
            raise RuntimeError(f"could not sign in with {SECRET}")
        self._left -= 1
        return super().token()


def not_made() -> TokenProvider:
    raise RuntimeError(f"could not sign in with {SECRET}")


def no_token() -> TokenProvider:
    return FailingProvider(0)


def no_token_at_reauthentication() -> TokenProvider:
    """The first two are for the bootstrap connection, and for the broker's own."""
    return FailingProvider(2)


def not_made_here() -> TokenProvider:
    return not_made() if failing else valid()


def no_token_here() -> TokenProvider:
    return no_token() if failing else valid()


CLIENT_ID, CLIENT_SECRET, AUDIENCE = "topic ledger", "s3cr3t of/the+client", "kafka"
"""The credentials that the token endpoint accepts, and the audience of its tokens."""
KEY_ID = "the-one-key"


@dataclass
class TokenEndpoint:
    """An identity provider's token endpoint, for one client."""

    key: Path
    """The key that signs the tokens."""
    address: str = ""
    seconds: float = 3600
    """Life of a token."""
    audience: str = AUDIENCE
    replies: list[tuple[int, object]] = field(default_factory=list)
    """Status and document of the next answers, instead of a token."""
    forms: list[str] = field(default_factory=list)
    """The requests."""

    def answer(self, authorization: str, form: str) -> tuple[int, object]:
        """Return status and document."""
        self.forms.append(form)
        if self.replies:
            return self.replies.pop(0)
        # RFC 6749, 2.3.1: both are encoded as in a form first.
        wanted = base64.b64encode(b"topic+ledger:s3cr3t+of%2Fthe%2Bclient").decode()
        if authorization != f"Basic {wanted}":
            return 401, {"error": "invalid_client", "error_description": f"{CLIENT_SECRET} is wrong"}
        now = int(time.time())
        claims = {"sub": USER, "scope": "kafka", "aud": self.audience, "iat": now, "exp": now + int(self.seconds)}
        return 200, {"access_token": signed(self.key, claims), "expires_in": self.seconds, "token_type": "Bearer"}


@contextmanager
def token_endpoint(key: Path, certificate: Path) -> Iterator[TokenEndpoint]:
    """Run a token endpoint over TLS on this machine."""
    endpoint = TokenEndpoint(key)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, document = endpoint.answer(self.headers["Authorization"], form)
            self.send_response(status)
            if isinstance(document, str):
                self.send_header("Location", document)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    endpoint.address = f"https://127.0.0.1:{server.server_address[1]}/token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()


def write_key(key: Path, keys: Path) -> None:
    """Write a new key that signs tokens, and its public part as a JSON Web Key Set (RFC 7517)."""
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    numbers = made.public_key().public_numbers()
    public = {
        name: base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8)).rstrip(b"=").decode()
        for name, value in (("n", numbers.n), ("e", numbers.e))
    }
    keys.write_text(json.dumps({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID, **public}]}))


def signed(key: Path, claims: dict[str, object]) -> str:
    """Return a signed token (RS256)."""
    private: Any = load_pem_private_key(key.read_bytes(), password=None)
    text = f"{_encoded({'alg': 'RS256', 'typ': 'JWT', 'kid': KEY_ID})}.{_encoded(claims)}"
    signature = private.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _encoded(document: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
