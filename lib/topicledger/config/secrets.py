"""Secrets by reference: `env:NAME` and `file:PATH` become values only here, on the host that makes the client.

Settings, Spark tasks and tables carry the references. An executor that makes a client needs the variable or the file
itself; where it hasn't got them the reference fails there with a SecretError.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from topicledger.config.settings import SECRET_OPTIONS, ClusterSettings
from topicledger.errors import SecretError

_TOKEN_PROVIDER = "sasl_oauth_token_provider"
_PROXY_OPTIONS = frozenset({"proxy_url", "socks5_proxy"})
_URL_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*:[^/?#\s]*@")
_URL_PASSWORD = re.compile(r"(?:^|://)[^/?#@]*?:(?P<password>[^/?#]+)@")
_SHORT = 4
_KNOWN_CODE = sys.stdlib_module_names | {"kafka", "topicledger"}
"""Top-level packages whose errors hold no secret but those that `redact` knows."""


class Secret(str):
    """A resolved reference: the plain value for the client that is given it, `***` in any repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def resolve_client_options(cluster: ClusterSettings) -> dict[str, object]:
    """The cluster's client options with every reference read now and the OAuth token provider made.

    Values that came from a reference are `Secret` strings. Raises SecretError naming cluster, key and reference.
    """
    options: dict[str, object] = {}
    for key, value in cluster.client.items():
        resolved: object = resolve(_where(cluster, key), value) if isinstance(value, str) else value
        if key == _TOKEN_PROVIDER and isinstance(resolved, str):
            resolved = _token_provider(f"clusters.{cluster.name}.client.{key}", resolved)
        options[key] = resolved
    return options


def check_references(cluster: ClusterSettings) -> None:
    """Raise SecretError where a reference can't be read here, or the OAuth token provider's factory isn't there.

    The factory is not called: whether it works now is that cluster's affair alone, when its client is made.
    """
    for key, value in cluster.client.items():
        if isinstance(value, str):
            resolved = resolve(_where(cluster, key), value)
            if key == _TOKEN_PROVIDER:
                _token_factory(f"clusters.{cluster.name}.client.{key}", resolved)


def secret_values(cluster: ClusterSettings) -> frozenset[str]:
    """The secret texts this cluster's client may know, for `redact`: passwords, and URLs that hold one.

    References that can't be resolved are left out: what nobody could read can't be in a message.
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
    return frozenset(found)


def has_url_credentials(option: str, text: str) -> bool:
    """Whether the value of a client option is a URL with a password in it (`proxy_url`: also without a scheme)."""
    return bool(_URL_CREDENTIALS.search(text)) or (option in _PROXY_OPTIONS and "@" in text)


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every secret replaced by `***`, also where it was escaped by repr, JSON or a URL.

    A secret of fewer than 4 characters is replaced only where it stands alone: replaced inside other words it would
    garble the message and, by the pattern it leaves, give itself away.
    """
    patterns: list[str] = []
    for secret in sorted(_written_forms(secrets), key=lambda form: (-len(form), form)):
        escaped = re.escape(secret)
        patterns.append(escaped if len(secret) >= _SHORT else rf"(?<!\w){escaped}(?!\w)")
    return re.sub("|".join(patterns), "***", text) if patterns else text


def foreign_code(error: BaseException) -> str | None:
    """The module that is neither ours nor kafka-python's nor Python's own and that raised, or passed on, an error.

    A token provider, botocore and the like may quote in an error what nobody else knows to be a secret.
    """
    modules = [type(error).__module__]
    traceback = error.__traceback__
    while traceback is not None:
        modules.append(str(traceback.tb_frame.f_globals.get("__name__")))
        traceback = traceback.tb_next
    # The innermost: it knows best.
    return next((each for each in reversed(modules) if each.partition(".")[0] not in _KNOWN_CODE), None)


def words_of(error: BaseException) -> str:
    """Return the part of an error that may be shown: its text, or only its type if foreign code took part in it."""
    kind, module = type(error).__name__, foreign_code(error)
    if module is not None:
        return f"{kind} raised by {module}, whose text is not shown since it may hold a secret"
    text = str(error)
    return text if isinstance(error, OSError) or text.startswith(kind) else f"{kind}: {text}"


def _written_forms(secrets: Iterable[str]) -> set[str]:
    """Each secret as it is and as libraries may write it."""
    forms: set[str] = set()
    for secret in secrets:
        plain = "".join(secret)
        forms.update({plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], quote(plain, safe="", errors="replace")})
    forms.discard("")
    return forms


def _where(cluster: ClusterSettings, key: str) -> str:
    return f"clusters.{cluster.name}.client.{key}"


def resolve(where: str, value: str) -> str:
    """The value behind a reference; a string that is none is returned as it is.

    Raises SecretError, which names the place `where` in the settings, if it can't be read.
    """
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        found = os.environ.get(name)
        if found is None:
            raise SecretError(f"{where}: environment variable {name} is not set")
        if not found:
            raise SecretError(f"{where}: environment variable {name} is empty")
        return Secret(found)
    if value.startswith("file:"):
        return Secret(_read(where, value.removeprefix("file:")))
    return value


def _read(where: str, path: str) -> str:
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        # the cause would carry the file's bytes along
        raise SecretError(f"{where}: file {path} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SecretError(f"{where}: can't read file {path}: {reason}") from error
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    if not text:
        raise SecretError(f"{where}: file {path} is empty")
    return text


def _token_provider(where: str, reference: str) -> object:
    """What `package.module:factory` makes: kafka-python wants an object, settings can only name one."""
    factory = _token_factory(where, reference)
    try:
        return factory()
    except (Exception, SystemExit) as error:
        # Its text may quote a credential, so only the kind of error is shown.
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
