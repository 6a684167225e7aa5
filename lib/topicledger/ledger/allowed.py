"""The allowance of a run: numbers of approvals that let through what guards stopped, as the row of the run has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

Allowed = Mapping[str, Sequence[Mapping[str, int]]]
"""Cluster -> combinations of numbers, each guard -> number. One combination must have all guards of an action: numbers
of several don't add up to one that nobody allowed."""


def read_allowed(text: str | None) -> Allowed:
    found = json.loads(text or "{}")
    return {cluster: each if isinstance(each, list) else [each] for cluster, each in found.items()}


def written(allowed: Allowed) -> str:
    """Return JSON for `read_allowed`. The only combination of a cluster is no list, as older versions read it."""
    found = {cluster: each[0] if len(each) == 1 else list(each) for cluster, each in allowed.items()}
    return json.dumps(found, sort_keys=True)
