"""Secret references: `env:NAME` and `file:PATH` are resolved only here, on the host that makes the client.

Settings, Spark tasks and tables contain only the references. An executor that makes a client needs the variable or the
file itself; without it, resolving the reference raises SecretError there.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from topicledger.config.settings import SECRET_OPTIONS, ClusterSettings
from topicledger.errors import SecretError, TopicLedgerError

_TOKEN_PROVIDER = "sasl_oauth_token_provider"
_PROXY_OPTIONS = frozenset({"proxy_url", "socks5_proxy"})
_URL_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*:[^/?#\s]*@")
_URL_PASSWORD = re.compile(r"(?:^|://)[^/?#@]*?:(?P<password>[^/?#]+)@")
_SHORT = 4
_KNOWN_CODE = sys.stdlib_module_names | {"kafka", "topicledger"}
"""Top-level packages whose errors contain no secrets other than those that `redact` knows."""


class Secret(str):
    """A resolved reference: the plain value for the client, `***` in any repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def resolve_client_options(cluster: ClusterSettings) -> dict[str, object]:
    """Return the cluster's client options with resolved references and the OAuth token provider.

    Values of references are `Secret` strings. Raises SecretError naming cluster, key and reference.
    """
    options: dict[str, object] = {}
    for key, value in cluster.client.items():
        resolved: object = resolve(_where(cluster, key), value) if isinstance(value, str) else value
        if key == _TOKEN_PROVIDER and isinstance(resolved, str):
            resolved = _token_provider(f"clusters.{cluster.name}.client.{key}", resolved)
        options[key] = resolved
    return options


def check_references(cluster: ClusterSettings) -> None:
    """Raise SecretError if a reference can't be read here, or the OAuth token provider's factory doesn't exist.

    The factory is not called: if it fails later, only that cluster's client fails.
    """
    for key, value in cluster.client.items():
        if isinstance(value, str):
            resolved = resolve(_where(cluster, key), value)
            if key == _TOKEN_PROVIDER:
                _token_factory(f"clusters.{cluster.name}.client.{key}", resolved)
    for key, value in _oauth_references(cluster):
        resolve(f"clusters.{cluster.name}.oauth.{key}", value)


def _oauth_references(cluster: ClusterSettings) -> Iterator[tuple[str, str]]:
    if cluster.oauth is not None:
        yield "client_id", cluster.oauth.client_id
        yield "client_secret", cluster.oauth.client_secret


def secret_values(cluster: ClusterSettings) -> frozenset[str]:
    """Return the secrets that this cluster's client may know, for `redact`: passwords, and URLs that contain one.

    References that can't be resolved are left out, since an unread secret can't be in a message.
    """
    found: set[str] = set()
    for key, value in cluster.client.items():
        if not isinstance(value, str):
            continue
        try:
            text = str(resolve(_where(cluster, key), value))
        except SecretError:
            continue
        if key in SECRET_OPTIONS:
            found.add(text)
        elif has_url_credentials(key, text):
            found.add(text)
            password = _URL_PASSWORD.search(text)
            if password is not None:
                found.update({password["password"], unquote(password["password"])})
    if cluster.oauth is not None:
        with suppress(SecretError):
            found.add(str(resolve(f"clusters.{cluster.name}.oauth.client_secret", cluster.oauth.client_secret)))
    return frozenset(found)


def has_url_credentials(option: str, text: str) -> bool:
    """Whether the value of a client option is a URL with a password (for `proxy_url` also without a scheme)."""
    return bool(_URL_CREDENTIALS.search(text)) or (option in _PROXY_OPTIONS and "@" in text)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret in ``text`` with `***`, also if it was escaped by repr, JSON or a URL.

    A secret of fewer than 4 characters is replaced only as a whole word: replacing it inside other words would garble
    the message, and the gaps would reveal it.
    """
    patterns: list[str] = []
    for secret in sorted(_written_forms(secrets), key=lambda form: (-len(form), form)):
        escaped = re.escape(secret)
        patterns.append(escaped if len(secret) >= _SHORT else rf"(?<!\w){escaped}(?!\w)")
    return re.sub("|".join(patterns), "***", text) if patterns else text


def foreign_code(error: BaseException) -> str | None:
    """Return the foreign module that raised or passed on an error; None if only ours, kafka-python's and Python's did.

    A token provider, botocore and the like may quote text in an error that only they know to be a secret.
    """
    modules = [type(error).__module__]
    traceback = error.__traceback__
    while traceback is not None:
        modules.append(str(traceback.tb_frame.f_globals.get("__name__")))
        traceback = traceback.tb_next
    # The innermost module is the most specific.
    return next((each for each in reversed(modules) if each.partition(".")[0] not in _KNOWN_CODE), None)


def words_of(error: BaseException) -> str:
    """Return the part of an error that may be shown: its text, or only its type if foreign code took part in it."""
    kind, module = type(error).__name__, foreign_code(error)
    if module is not None:
        return f"{kind} raised by {module}, whose text is not shown since it may hold a secret"
    text = str(error)
    return text if isinstance(error, OSError) or text.startswith(kind) else f"{kind}: {text}"


def _written_forms(secrets: Iterable[str]) -> set[str]:
    """Return each secret in plain form and in the forms that libraries may write."""
    forms: set[str] = set()
    for secret in secrets:
        plain = "".join(secret)
        forms.update({plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], quote(plain, safe="", errors="replace")})
    forms.discard("")
    return forms


def _where(cluster: ClusterSettings, key: str) -> str:
    return f"clusters.{cluster.name}.client.{key}"


def resolve(where: str, value: str) -> str:
    """Return the value behind a reference; any other string is returned unchanged.

    Raises SecretError, which names the place `where` in the settings, if the reference can't be read.
    """
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        found = os.environ.get(name)
        if found is None:
            raise SecretError(f"{where}: environment variable {name} is not set")
        if not found:
            raise SecretError(f"{where}: environment variable {name} is empty")
        if any("\udc80" <= each <= "\udcff" for each in found):
            # Python's stand-ins for such bytes: no client could send them, and its error would quote a part.
            raise SecretError(f"{where}: environment variable {name} is not UTF-8 text")
        return Secret(found)
    if value.startswith("file:"):
        return Secret(_read(where, value.removeprefix("file:")))
    return value


def _read(where: str, path: str) -> str:
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        # The cause would contain the file's bytes.
        raise SecretError(f"{where}: file {path} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SecretError(f"{where}: can't read file {path}: {reason}") from error
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    if not text:
        raise SecretError(f"{where}: file {path} is empty")
    return text


def _token_provider(where: str, reference: str) -> object:
    """Return the object that `package.module:factory` makes, since settings can't contain the object itself."""
    factory = _token_factory(where, reference)
    try:
        return factory()
    except TopicLedgerError as error:
        # The package's own providers quote no credential.
        raise SecretError(f"{where}: {error}") from None
    except (Exception, SystemExit) as error:
        # The error's text may quote a credential, so only its type is shown.
        raise SecretError(f"{where}: `{reference}` raised {type(error).__name__}") from None


def _token_factory(where: str, reference: str) -> Callable[[], object]:
    module_name, _, factory_name = reference.partition(":")
    try:
        factory: Callable[[], object] = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError, ValueError):
        raise SecretError(
            f"{where}: can't find `{reference}` here; the module must be importable where the client is made"
        ) from None
    except (Exception, SystemExit) as error:
        raise SecretError(f"{where}: importing `{reference}` raised {type(error).__name__}") from None
    return factory
