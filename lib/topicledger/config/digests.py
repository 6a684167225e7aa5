"""Digests of settings: of canonical JSON, which is the same however the TOML file is written."""

from __future__ import annotations

import hashlib
import json


def digest_of(content: object) -> str:
    """Return the SHA-256 (hex) of the content's canonical JSON."""
    return hashlib.sha256(canonical(content).encode("utf-8")).hexdigest()


def canonical(content: object) -> str:
    """Return canonical JSON, with TOML's dates and times as ISO text."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
