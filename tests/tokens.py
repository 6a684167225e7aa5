"""Token providers for SASL/OAUTHBEARER, as users write them: settings name the factory."""

from __future__ import annotations

import base64
import json
import time

from kafka.net.sasl.oauth import AbstractTokenProvider

USER = "creator"


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Makes tokens that nobody signed, which a broker that isn't told of any keys takes (KIP-255)."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def token(self) -> str:
        """A token that expires so many seconds from now."""
        now = time.time()
        claims = {"sub": USER, "iat": min(now, now + self._seconds) - 60, "exp": now + self._seconds}
        return ".".join([_encoded({"alg": "none"}), _encoded(claims), ""])


def valid() -> TokenProvider:
    return TokenProvider(3600)


def expired() -> TokenProvider:
    return TokenProvider(-3600)


def _encoded(document: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
