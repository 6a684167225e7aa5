"""Each kind of drift of rights, on a broker with StandardAuthorizer that another hand changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.broker.acls import acl, change, declare, estate_of, live, right
from tests.broker.direct import make, remove
from tests.waiting import until
from topicledger.resources.acls.names import AclDrift
from topicledger_testing.embedded_kafka import EmbeddedKafka


@pytest.mark.thorough
def test_every_kind_of_drift_of_rights_is_found(spark: SparkSession, kafka_acls: EmbeddedKafka, tmp_path: Path) -> None:
    """One finding of each, and none of a right that is as declared."""
    ids = make(kafka_acls, "rights.drift.t")
    kept = right("User:rights-a", "READ", "rights.drift.t")
    missing = right("User:rights-a", "WRITE", "rights.drift.t")
    on_gone = right("User:rights-gone", "READ", "rights.drift.gone")
    estate = estate_of(spark, kafka_acls, tmp_path, manage=("^User:rights-m$",))
    declare(estate, kept, missing, on_gone)
    unmanaged = right("User:rights-m", "DESCRIBE", "rights.drift.t")
    wider = right("User:rights-a", "READ", "rights.drift.", pattern_type="PREFIXED")
    denied = right("User:rights-a", "READ", "rights.drift.t", permission="DENY", host="10.0.0.1")
    there = [acl(row) for row in (kept, on_gone, unmanaged, wider, denied)]
    change(kafka_acls, add=there)
    until(lambda: live(kafka_acls, "User:rights") == set(there), seconds=30)
    told = estate.run_audit()
    remove(kafka_acls, ids)
    found = {(row.kind, row.topic, row.what) for row in told.drift if row.kind.startswith("acl_")}
    assert found == {
        ("acl_missing", "rights.drift.t", " ".join(acl(missing))),
        ("acl_unmanaged", "rights.drift.t", " ".join(acl(unmanaged))),
        ("acl_wider", None, " ".join(acl(wider))),
        ("acl_denied", "rights.drift.t", " ".join(acl(denied))),
        ("acl_on_missing_topic", "rights.drift.gone", " ".join(acl(on_gone))),
        ("acl_principal_without_topics", None, "User:rights-gone"),
    }
    assert {kind for kind, _, _ in found} == {kind.value for kind in AclDrift}
