"""Files for data catalogs: DataHub's metadata change proposals, or a plain list of topics.

Topic names have none of the characters that URNs reserve; names of clusters, owners and labels may have them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from pyspark.sql import Row

from topicledger.config.settings import Settings
from topicledger.ledger.sql import sql_text
from topicledger.ledger.tables import Ledger
from topicledger.queries.views import registered, used_by
from topicledger.text import json_array

ENVIRONMENTS = (
    "PROD", "DEV", "TEST", "QA", "UAT", "EI", "PRE", "STG", "NON_PROD", "CORP", "CERT", "RVW", "SANDBOX", "SIT",
)  # fmt: skip
"""DataHub's names of environments."""
_RESERVED = str.maketrans({"%": "%25", ",": "%2C", "(": "%28", ")": "%29", "␟": "%E2%90%9F"})
"""Characters that DataHub encodes in URNs."""
_PLATFORM = "urn:li:dataPlatform:kafka"
_CONFIGS = {
    "cleanup_policy": "cleanup.policy",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "min_insync_replicas": "min.insync.replicas",
}
_PROPERTIES = {"num_partitions": "Partitions", "replication_factor": "Replication Factor", **_CONFIGS}
"""Column of current_topics -> custom property, named as DataHub's own source for Kafka names it."""
_WRITER = "urn:li:corpuser:topicledger"


def topics(ledger: Ledger, settings: Settings, clusters: Collection[str]) -> Iterator[Row]:
    """Yield the rows of current_topics of these clusters, in order."""
    names = ", ".join(sql_text(name) for name in sorted(clusters))
    query = f"SELECT * FROM current_topics WHERE cluster IN ({names}) ORDER BY cluster, topic"
    with registered(ledger, settings, used_by(query)):
        yield from ledger.spark.sql(query).toLocalIterator()


def removed(ledger: Ledger, settings: Settings, clusters: Collection[str]) -> Iterator[Row]:
    """Yield cluster and topic of those topics that this ledger deleted last, as far as audits know.

    Others that aren't listed any more may only be hidden from the principal.
    """
    names = ", ".join(sql_text(name) for name in sorted(clusters))
    query = f"""
        SELECT known.cluster, known.topic
        FROM (
            SELECT cluster, topic, changed_at AS known_at, action
            FROM changes
            WHERE resource_type = 'topic' AND action IN ('create', 'delete')
            UNION ALL
            SELECT cluster, topic, observed_at, 'seen' FROM usage
        ) AS known
        LEFT ANTI JOIN observed ON known.cluster = observed.cluster AND known.topic = observed.topic
        WHERE known.cluster IN ({names})
        GROUP BY known.cluster, known.topic
        HAVING max_by(known.action, known.known_at) = 'delete'
        ORDER BY known.cluster, known.topic"""
    with registered(ledger, settings, used_by(query)):
        yield from ledger.spark.sql(query).toLocalIterator()


def as_list(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each topic: cluster, a tab, topic."""
    for row in rows:
        yield f"{row['cluster']}\t{row['topic']}\n"


def as_datahub(rows: Iterable[Row], environment: str, gone: Iterable[Row] = ()) -> Iterator[str]:
    """Yield a JSON array of metadata change proposals, one aspect each. `gone`: topics that are marked as removed."""
    live = (each for row in rows for each in _proposals(row, _aspects(row), environment))
    without = (each for row in gone for each in _proposals(row, {"status": {"removed": True}}, environment))
    return json_array(json.dumps(each) for each in chain(live, without))


def _proposals(row: Row, aspects: Mapping[str, Any], environment: str) -> Iterator[Mapping[str, Any]]:
    urn = f"urn:li:dataset:({_PLATFORM},{_encoded(row['cluster'])}.{_encoded(row['topic'])},{environment})"
    for name, aspect in aspects.items():
        yield {
            "entityType": "dataset",
            "entityUrn": urn,
            "changeType": "UPSERT",
            "aspectName": name,
            "aspect": {"json": aspect},
        }


def _aspects(row: Row) -> Mapping[str, Any]:
    """Return the aspects of a topic; without an owner or labels it has no such aspect, so that others can set it."""
    properties = {shown: str(row[name]) for name, shown in _PROPERTIES.items() if row[name] is not None}
    properties["Declared"] = str(row["declared"]).lower()
    if row["topic_id"] is not None:
        properties["Topic ID"] = row["topic_id"]
    labels = row["labels"] or {}
    described = {"description": row["description"]} if row["description"] else {}
    aspects: dict[str, Any] = {
        "datasetProperties": {"name": row["topic"], **described, "customProperties": properties, "tags": []},
        "dataPlatformInstance": {
            "platform": _PLATFORM,
            "instance": f"urn:li:dataPlatformInstance:({_PLATFORM},{_encoded(row['cluster'])})",
        },
        "subTypes": {"typeNames": ["Topic"]},
        "status": {"removed": False},
    }
    if row["owner"]:
        owner = {"owner": f"urn:li:corpGroup:{_encoded(row['owner'])}", "type": "TECHNICAL_OWNER"}
        aspects["ownership"] = {"owners": [owner], "ownerTypes": {}, "lastModified": {"time": 0, "actor": _WRITER}}
    if labels:
        # Two labels can make the same tag.
        tags = dict.fromkeys(_encoded(_tag(name, value)) for name, value in sorted(labels.items()) if name)
        aspects["globalTags"] = {"tags": [{"tag": f"urn:li:tag:{each}"} for each in tags]}
    return aspects


def _tag(name: str, value: str | None) -> str:
    return f"{name}:{value}" if value else name


def _encoded(name: str) -> str:
    return name.translate(_RESERVED)
