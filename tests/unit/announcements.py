"""Announcements of runs and audits."""

from __future__ import annotations

from dataclasses import replace

from topicledger.apply.planned import Pending
from topicledger.apply.summary import ClusterCounts, Failure, Summary
from topicledger.config.severities import Severity
from topicledger.drift.summary import DriftRow, DriftSummary

HOSTILE = "<!channel> *a*\x1b[31m"


DONE = Summary(
    run_id="nightly",
    state="finished",
    exit_code=0,
    manifest_version=3,
    clusters=[ClusterCounts(cluster="main", outcomes={"ok": 2})],
    decisions={},
    pending=Pending(),
    failures=[],
    query="SELECT 1",
)


REFUSED = replace(
    DONE,
    exit_code=4,
    clusters=[ClusterCounts(cluster="main", outcomes={"refused": 1})],
    failures=[
        Failure(
            cluster="main",
            topic=HOSTILE,
            resource=HOSTILE,
            action=None,
            phase="manifest",
            outcome="refused",
            error_code=-1,
            error="INVALID_TOPIC",
            error_message="the name is not legal",
        )
    ],
)


def drifted(**severities: int) -> DriftSummary:
    found = [
        DriftRow(
            severity=severity,
            cluster="main",
            topic="orders",
            kind="config_differs",
            what="retention.ms",
            declared="1",
            live="2",
            since="2026-11-23T02:00:00Z",
            message="a different value is set on the topic",
        )
        for severity, count in severities.items()
        if count
    ]
    return DriftSummary(
        run_id="audit-1",
        state="finished",
        exit_code=0,
        manifest_version=3,
        clusters=[],
        kinds={"config_differs": sum(severities.values())},
        severities={each.value: severities.get(each.value, 0) for each in Severity},
        drift=found,
        query="SELECT 1",
        manifests_refused=0,
    )
