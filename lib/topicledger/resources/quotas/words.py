"""Words for client quotas in messages, help texts and advice."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.config.severities import DriftKind
from topicledger.model import Refusal
from topicledger.resources.kind import Words

_OF_ERRORS: Mapping[Refusal, str] = {
    Refusal.INVALID_QUOTA: "Correct the row of quotas, as the message says.",
    Refusal.MAX_QUOTA_CHANGES_EXCEEDED: (
        "If these quota changes are intended, raise guards.max_quota_changes; none was sent."
    ),
}

OF_DRIFT: Mapping[DriftKind, str] = {
    DriftKind.QUOTA_MISSING: "Run `provision`: it sets the limits.",
    DriftKind.QUOTA_DIFFERS: "Run `provision`, which sets the declared limits, or declare the live ones.",
    DriftKind.QUOTA_UNMANAGED: "Declare the entity, or declare it absent: until then, runs don't change it.",
}
"""What to do about each kind of drift."""

WORDS = Words(
    one="quota",
    declared="entity",
    export_help="Also the client quotas.",
    advice=_OF_ERRORS,
    explain_help="Or the entity that has quotas, named likewise.",
)
