"""[proof]: how the digests of runs are signed."""

from __future__ import annotations

from dataclasses import dataclass

from topicledger.config.toml_table import TomlTable


@dataclass(frozen=True, kw_only=True)
class ProofSettings:
    """How the digests of runs are signed: docs/proof.md."""

    key: str | None = None
    """`env:NAME` or `file:PATH` of a key that signs the digests of runs (HMAC-SHA256): without the key nobody can forge
    those of ended runs, even with write access to the tables. By default digests are SHA-256, which anyone can compute
    again."""


def read_proof(table: TomlTable) -> ProofSettings:
    """Read [proof]."""
    table.only("key")
    return ProofSettings(key=table.reference("key"))
