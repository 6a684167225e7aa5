"""A certificate authority of the test's own, and certificates of brokers and clients, good ones and others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests import tokens
from topicledger_testing.embedded_kafka import HOST


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """Files in PEM; those of brokers and clients hold the key and the chain."""

    authority: Path
    stranger: Path
    """An authority that issued none of the others."""
    server: Path
    expired: Path
    other_name: Path
    """A broker's, for a host that isn't this one."""
    client: Path
    token_key: Path
    """The key of an identity provider."""
    token_keys: Path
    """Its public part, as a JSON Web Key Set."""


def issue(folder: Path) -> Certificates:
    """Make an authority, and have it issue all of them into `folder`."""
    authority, stranger = trustme.CA(), trustme.CA()
    token_key, token_keys = folder / "token-key.pem", folder / "token-keys.json"
    tokens.write_key(token_key, token_keys)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    made = Certificates(
        authority=folder / "authority.pem",
        stranger=folder / "stranger.pem",
        server=_write(folder / "server.pem", authority.issue_cert(HOST, "localhost")),
        expired=_write(
            folder / "expired.pem",
            authority.issue_cert(HOST, not_before=yesterday - timedelta(days=30), not_after=yesterday),
        ),
        other_name=_write(folder / "other-name.pem", authority.issue_cert("kafka.example.org")),
        client=_write(folder / "client.pem", authority.issue_cert("topicledger@example.org")),
        token_key=token_key,
        token_keys=token_keys,
    )
    authority.cert_pem.write_to_path(str(made.authority))
    stranger.cert_pem.write_to_path(str(made.stranger))
    return made


def _write(path: Path, certificate: trustme.LeafCert) -> Path:
    """Kafka reads keys as PKCS #8 only."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    )
    path.chmod(0o600)
    return path
