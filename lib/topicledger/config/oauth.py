"""[clusters.NAME.oauth]: the credentials with which a client gets tokens for SASL/OAUTHBEARER."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from topicledger.config.addresses import is_host, is_this_machine
from topicledger.config.toml_table import TomlTable, only_a_prefix

_WRITTEN = re.compile(r"[!-~]+")
"""Characters that Python's HTTP client accepts in an address."""
_WRONG_PLACE = "is not an https: address: check its host, and its port, a number from 1 to 65535"
_EXTENSION = re.compile(r"[A-Za-z]+")
"""Names of extensions (RFC 7628, 3.1); `auth` is the token's own."""


@dataclass(frozen=True, kw_only=True)
class OAuthSettings:
    """Credentials at an identity provider that returns a token for SASL/OAUTHBEARER, by client credentials."""

    token_endpoint: str
    """The provider's `https:` address for tokens. `http:` is accepted only for this machine, such as a sidecar."""
    client_id: str
    """The client's id; `env:NAME` and `file:PATH` are accepted, too."""
    client_secret: str
    """`env:NAME` or `file:PATH` of the client's secret."""
    scope: str | None = None
    """The scopes to ask for, with blanks between them. By default the provider's own."""
    ca_file: str | None = None
    """A file (PEM) with the authorities to trust at the token endpoint. By default the system's."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions that the brokers need, such as `logicalCluster` and `identityPoolId` on Confluent Cloud."""


def read_oauth(table: TomlTable, client: Mapping[str, object]) -> OAuthSettings | None:
    """Read [clusters.NAME.oauth], which sets options of `client`; None if the table is missing or empty."""
    if not table.values:
        return None
    table.only("token_endpoint", "client_id", "client_secret", "scope", "ca_file", "extensions")
    endpoint, client_id = table.text("token_endpoint"), table.text("client_id")
    for name in ("token_endpoint", "client_id"):
        if name not in table.values:
            table.problem(name, "is missing")
    if endpoint is not None and (wrong := _wrong_endpoint(endpoint)) is not None:
        table.problem("token_endpoint", wrong)
    if client_id is not None and (wrong := only_a_prefix(client_id)) is not None:
        table.problem("client_id", wrong)
    extensions = table.text_values("extensions")
    for name, value in extensions.items():
        if not _EXTENSION.fullmatch(name) or name == "auth" or not value.isprintable():
            table.problem("extensions", f"can't have `{name}`: names have only letters, values no control characters")
    for option, wanted in (("security_protocol", ("SASL_SSL", "SASL_PLAINTEXT")), ("sasl_mechanism", ("OAUTHBEARER",))):
        if client.get(option, wanted[0]) not in wanted:
            table.problems.append(f'`{table.where}` needs client.{option} = "{wanted[0]}", or no such option')
    if "sasl_oauth_token_provider" in client:
        table.problems.append(f"`{table.where}` and client.sasl_oauth_token_provider exclude each other: keep one")
    return OAuthSettings(
        token_endpoint=endpoint or "",
        client_id=client_id or "",
        client_secret=table.reference("client_secret", required=True) or "",
        scope=table.text("scope"),
        ca_file=table.text("ca_file"),
        extensions=extensions,
    )


def _wrong_endpoint(text: str) -> str | None:
    """Return why an address can't be a token endpoint, without the address: it may hold a password."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        return _WRONG_PLACE
    if not host or url.scheme not in ("https", "http"):
        return "is not an https: address"
    if "@" in url.netloc:
        return "holds a user or a password: give client_id and client_secret instead"
    if not _WRITTEN.fullmatch(text):
        return "has a blank, or a character outside ASCII: write it as %XX, in a host as Punycode (xn--...)"
    if not is_host(host) or port == 0:
        return _WRONG_PLACE
    if url.scheme == "http" and not is_this_machine(host):
        return "must be an https: address: http: would show the secret"
    return None
