"""How runs are proven."""

from __future__ import annotations

from dataclasses import dataclass

from topicledger.config.toml_table import TomlTable


@dataclass(frozen=True, kw_only=True)
class ProofSettings:
    """How runs are proven: docs/proof.md."""

    key: str | None = None
    """`env:NAME` or `file:PATH` of a key that the digests of runs are signed with (HMAC-SHA256): who can write to the
    tables and hasn't got the key can't forge them. By default digests are SHA-256, without a key."""


def read_proof(table: TomlTable) -> ProofSettings:
    """[proof]"""
    table.only("key")
    return ProofSettings(key=table.reference("key"))
