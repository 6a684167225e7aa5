"""Words for client quotas in messages, help texts and advice."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.naming import DriftName, RefusalName
from topicledger.resources.kind import Words
from topicledger.resources.quotas.names import QuotaDrift, QuotaRefusal

_OF_ERRORS: Mapping[RefusalName, str] = {
    QuotaRefusal.INVALID_QUOTA: "Correct the row of quotas, as the message says.",
}

OF_DRIFT: Mapping[DriftName, str] = {
    QuotaDrift.QUOTA_MISSING: "Run `provision`: it sets the limits, within guards.max_quota_changes.",
    QuotaDrift.QUOTA_DIFFERS: (
        "Run `provision`, which sets the declared limits within guards.max_quota_changes, or declare the live ones."
    ),
    QuotaDrift.QUOTA_UNMANAGED: "Declare the entity, or declare it absent: until then, runs don't change it.",
}
"""What to do about each kind of drift."""

WORDS = Words(
    declared="entity",
    export_help="Also export the client quotas.",
    advice=_OF_ERRORS,
    explain_help="Explain the quotas of an entity instead of a topic; TEXT is as in the column `resource` of `plans`.",
)
