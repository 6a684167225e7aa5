"""Tokens for SASL/OAUTHBEARER from an identity provider, by client credentials (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import functools
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from urllib.parse import quote_plus, urlencode

from kafka.net.sasl.oauth import AbstractTokenProvider

from topicledger.config.http import opener
from topicledger.config.oauth import OAuthSettings
from topicledger.config.secrets import resolve
from topicledger.config.settings import ClusterSettings
from topicledger.errors import ClusterError
from topicledger.text import show

_ATTEMPTS = 3
_PAUSE_SECONDS = 0.5
_ATTEMPT_SECONDS = 5.0
_MOST_BYTES = 1_000_000
_USED_PART = 0.8
"""Part of a token's life after which a new one is fetched, so that no token expires on its way (as in Kafka)."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ERROR_CODE = re.compile(r"[a-z_]{1,60}")


class TokenError(ClusterError):
    """The identity provider returned no token; names the cluster and the token endpoint."""


class _TryAgain(Exception):
    """The token endpoint can't be reached, or is busy."""


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """Gets tokens from a token endpoint and keeps each for most of its life. Threads may share it."""

    def __init__(self, cluster: str, oauth: OAuthSettings, client_id: str, client_secret: str) -> None:
        super().__init__()
        self._where = f"clusters.{cluster}.oauth"
        self._endpoint = oauth.token_endpoint
        self._ca_file = oauth.ca_file
        self._extensions = dict(oauth.extensions)
        credentials = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
        self._authorization = f"Basic {base64.b64encode(credentials).decode()}"
        form = {"grant_type": "client_credentials", **({"scope": oauth.scope} if oauth.scope else {})}
        self._form = urlencode(form).encode()
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0

    def token(self) -> str:
        """Return a token that is valid for a while; raises TokenError, which shows neither secret nor token."""
        with self._lock:
            if time.time() >= self._until:
                self._token, seconds = self._new()
                self._until = time.time() + seconds * _USED_PART
            return self._token

    def forget(self) -> None:
        """Fetch a new token next time: the brokers may have refused this one."""
        with self._lock:
            self._until = 0.0

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions that the brokers need."""
        return self._extensions

    def _new(self) -> tuple[str, float]:
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            try:
                return self._answer()
            except _TryAgain as error:
                why = str(error)
        raise self._no_token(f"{why}: check {self._where}.token_endpoint, and that it is up")

    def _answer(self) -> tuple[str, float]:
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        request = urllib.request.Request(self._endpoint, data=self._form, headers=headers, method="POST")
        try:
            client = opener(self._ca_file)
        except OSError as error:
            raise self._no_token(f"{self._where}.ca_file {self._ca_file} can't be read: {error.strerror}") from None
        try:
            with client.open(request, timeout=_ATTEMPT_SECONDS) as response:
                text = response.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            code = _error_code(error)
            if error.code >= 500 or error.code == 429:
                raise _TryAgain(f"it answered with status {error.code}{code}") from None
            hint = "check client_id, client_secret and scope there"
            raise self._no_token(f"it answered with status {error.code}{code}: {hint}") from None
        except OSError as error:
            raise _TryAgain(str(getattr(error, "reason", error))) from None
        except (HTTPException, ValueError) as error:
            # The error's text quotes the answer, which may hold a token.
            raise _TryAgain(f"its answer is not HTTP, or was cut off ({type(error).__name__})") from None
        return self._parsed(text)

    def _parsed(self, text: bytes) -> tuple[str, float]:
        try:
            answer = json.loads(text)
            token, seconds = answer["access_token"], float(answer.get("expires_in") or 0)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            token, seconds = None, 0.0
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise self._no_token("its answer has no access_token: check that it is the address for tokens")
        return token, seconds

    def _no_token(self, why: str) -> TokenError:
        return TokenError(f"{self._where}: no token from {show(self._endpoint)}: {why}")


def _error_code(error: urllib.error.HTTPError) -> str:
    """Return ` (invalid_client)` if an answer has such a code (RFC 6749, 5.2); its other texts may hold a secret."""
    try:
        code = json.loads(error.read(_MOST_BYTES))["error"]
    except (OSError, HTTPException, ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


@functools.lru_cache(maxsize=256)
def _shared(cluster: str, oauth: str, client_id: str, client_secret: str) -> ClientCredentials:
    """Return this process's provider: all connections of a run use one token."""
    return ClientCredentials(cluster, OAuthSettings(**json.loads(oauth)), client_id, client_secret)


def provider_of(cluster: ClusterSettings) -> ClientCredentials | None:
    """Return the provider of [clusters.NAME.oauth]; None if there is no such table. Raises SecretError."""
    oauth = cluster.oauth
    if oauth is None:
        return None
    where = f"clusters.{cluster.name}.oauth"
    client_id = "".join(resolve(f"{where}.client_id", oauth.client_id))
    client_secret = "".join(resolve(f"{where}.client_secret", oauth.client_secret))
    return _shared(cluster.name, json.dumps(vars(oauth)), client_id, client_secret)


def options_with(provider: ClientCredentials | None) -> Mapping[str, object]:
    """Return the client options that a provider needs; those of the settings precede them."""
    if provider is None:
        return {}
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }
