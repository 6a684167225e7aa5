"""The formats of other tools."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.files.foreign.contract import ForeignFormat
from topicledger.files.foreign.jikkou import JIKKOU
from topicledger.files.foreign.julie import JULIE
from topicledger.files.foreign.kafka_gitops import KAFKA_GITOPS
from topicledger.files.foreign.kafka_topics import KAFKA_TOPICS
from topicledger.files.foreign.of_kinds import PARTS
from topicledger.files.foreign.strimzi import STRIMZI
from topicledger.files.foreign.topicctl import TOPICCTL

FOREIGN_FORMATS: Mapping[str, ForeignFormat] = {
    form.name: form
    for form in (
        STRIMZI,
        TOPICCTL,
        JIKKOU,
        KAFKA_GITOPS,
        JULIE,
        KAFKA_TOPICS,
        *(form for part in PARTS.values() for form in part.formats),
    )
}
"""Formats by name, for the option `--from`."""
