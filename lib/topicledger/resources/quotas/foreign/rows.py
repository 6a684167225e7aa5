"""Convert quotas of another tool's files to rows of `quotas`."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.files.foreign.fields import Fields
from topicledger.manifests.files.report import Report
from topicledger.manifests.files.results import ResourceRow
from topicledger.resources.quotas.entity import LIMITS, Entity

JAVAS_NAMES: Mapping[str, str] = {
    "producerByteRate": "producer_byte_rate",
    "consumerByteRate": "consumer_byte_rate",
    "requestPercentage": "request_percentage",
    "controllerMutationRate": "controller_mutation_rate",
}
"""Columns by the names that Java tools use."""
KAFKAS_NAMES: Mapping[str, str] = {column: column for column in JAVAS_NAMES.values()}


def limits_of(fields: Fields, names: Mapping[str, str] = JAVAS_NAMES) -> Mapping[str, float]:
    """Return the limits of a mapping, by column; list its other keys as unsupported."""
    found = {column: value for key, column in names.items() if (value := fields.number(key)) is not None}
    fields.rest()
    return found


def add_quota(
    report: Report,
    cluster: str | None,
    entity: Entity,
    limits: Mapping[str, float],
    line: int,
    owner: str | None = None,
    *,
    state: str = "present",
) -> None:
    """Report a row of `quotas` if its cluster is known; otherwise an error was reported before."""
    if cluster:
        report.resource(
            "quotas",
            ResourceRow(
                cluster=cluster,
                values={**entity._asdict(), **dict.fromkeys(LIMITS), **limits},
                state=state,
                owner=owner,
                labels=None,
                file=report.file,
                line=line,
            ),
        )
