"""Token providers for SASL/OAUTHBEARER, as users write them: settings name the factory."""

from __future__ import annotations

import base64
import json
import time

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


def _encoded(document: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
