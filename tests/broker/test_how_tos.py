"""Pages of the docs as a reader follows them: each command runs as printed, prints what the page shows, and does it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.broker import acls
from tests.broker.changes import alter, set_on
from tests.broker.direct import live, make, remove
from tests.broker.following import Page, page_of
from tests.broker.moving import replicas
from tests.broker.records import write
from tests.clusters import KAFKA, SASL_USERS, QuickKafka
from topicledger.ledger.tables import Ledger
from topicledger.schemas import AUDIT, OBSERVED, RUNS, USAGE
from topicledger_testing.embedded_kafka import EmbeddedKafka, KafkaOptions

WEEK, FORTNIGHT = "604800000", "1209600000"

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedKafka]:
    """Three brokers with ACLs, for this module: pages name their topics alike, and one drains a broker."""
    properties = {"offsets.topic.num.partitions": "3", "auto.leader.rebalance.enable": "false"}
    options = KafkaOptions(brokers=3, racks=("a", "b", "c"), sasl_users=SASL_USERS, properties=properties, heap="384m")
    with QuickKafka(KAFKA, options) as cluster:
        yield cluster


@pytest.fixture
def page(
    spark: SparkSession,
    brokers: EmbeddedKafka,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Page]:
    """The page that the test is named for, and a cluster without topics; the test must run all of its commands."""
    assert spark is not None
    page = Page(page_of(request.node.name), tmp_path, brokers, monkeypatch)
    yield page
    gone = {name: str(topic.topic_id) for name, topic in live(brokers, "").items() if not name.startswith("__")}
    if gone:
        remove(brokers, gone)
    if not request.session.testsfailed:
        assert page.left() == []


def ledger_of(spark: SparkSession, tables: str = "ledger") -> Ledger:
    """Return the ledger of the page's settings."""
    return Ledger(spark, str(Path.cwd() / tables))


def plan_digest(shown: str) -> str:
    """Return the digest of a plan from what `runs show` prints."""
    (found,) = re.findall("--plan ([0-9a-f]{16})", shown)
    return str(found)


def test_access(page: Page, brokers: EmbeddedKafka) -> None:
    page.write("acls.yaml", page.block("cluster: orders\ndefaults: {owner: payments}\nacls:\n  - consumer:"))
    page.do("load-manifests", "acls.yaml")
    make(brokers, "payments.authorised")
    page.do("provision", "--wait-visible", "30")
    assert {each.operation for each in acls.live(brokers, "User:reporting")} == {"DESCRIBE"}
    who = page.run("access who").stdout
    assert "User:payments" in who
    what = page.run("access what").stdout
    assert "payments.authorised" in what


def test_approvals(page: Page, brokers: EmbeddedKafka) -> None:
    make(brokers, "old.a", num_partitions=4)
    make(brokers, "old.b")
    common = "defaults: {owner: payments, replication_factor: 1, num_partitions: 1}\ntopics:\n"
    gone = "  - {topic: old.a, state: absent}\n  - {topic: old.b, state: absent}\n"
    page.declare(f"{common}{gone}  - {{topic: payments.new}}\n")
    page.values |= {"R": "cleanup", "12": "1"}
    page.do("plan", "--run-id", "cleanup", code=5)
    page.values["9f86d081884c7d65"] = plan_digest(page.do("runs", "show", "cleanup"))
    page.run("runs show")
    page.run("runs approve")
    page.do("apply", "--run-id", "cleanup")
    assert set(live(brokers, "")) - {"__consumer_offsets"} == {"payments.new"}

    page.settings("[guards]\napprovals = 1\n")
    page.declare(f"{common}  - {{topic: payments.more}}\n")
    page.values["R"] = "more"
    page.do("plan", "--run-id", "more", "--requested-by", "ann")
    page.run("apply", code=5)
    assert "payments.more" not in live(brokers, "payments")
    page.run("runs approve")
    page.do("apply", "--run-id", "more")
    assert "payments.more" in live(brokers, "payments")


def test_ci(page: Page, brokers: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICLEDGER_CONFIG", "my.toml")
    page.values["NEW"] = "again"
    common = "defaults: {owner: payments, num_partitions: 1, replication_factor: 1}\ntopics:\n"
    page.write("topics/payments.yaml", f"cluster: orders\n{common}  - {{topic: payments.authorised}}\n")
    page.settings("[guards]\napprovals = 1\n")
    page.run("plan topics")
    page.values["DIGEST"] = plan_digest(page.run("runs show").stdout)
    page.run("runs approve")
    page.run("apply topics")
    assert set(live(brokers, "payments.")) == {"payments.authorised"}


def test_declare(page: Page) -> None:
    page.write("topics/payments.yaml", page.block("cluster: orders\ndefaults: {replication_factor: 3"))
    page.write("more.csv", "cluster,topic,owner\norders,logistics.parcels,logistics\n")
    assert page.run("load-manifests").stdout == "3 added, 0 changed, 0 unchanged, 0 removed\n"
    query = "SELECT topic, state, configs['retention.ms'] FROM manifests ORDER BY topic"
    rows = page.do("sql", "--format", "csv", query).splitlines()[1:]
    assert [row.replace('"', "") for row in rows] == [
        "logistics.parcels,present,",
        f"payments.authorised,present,{WEEK}",
        "payments.legacy,absent,",
    ]


def test_plan_and_apply(page: Page, brokers: EmbeddedKafka) -> None:
    make(brokers, "orders.b", configs={"retention.ms": WEEK})
    make(brokers, "orders.c", num_partitions=4)
    page.settings('[changes]\nconfigs = "declared"\n[guards]\nmax_deletes = 1\n')
    page.declare(
        "defaults: {owner: payments}\ntopics:\n"
        "  - {topic: orders.a, num_partitions: 3, replication_factor: 3}\n"
        "  - {topic: orders.b, configs: {retention.ms: 14d}}\n"
        "  - {topic: orders.c, state: absent}\n"
    )
    page.do("plan", "--run-id", "pr-17")
    page.run("runs show", **{"12": "1"})
    page.do("apply", "--run-id", "pr-17", "--wait-visible", "30")
    assert set_on(brokers, "orders.b") == {"orders.b": {"retention.ms": FORTNIGHT}}
    assert set(live(brokers, "orders.")) == {"orders.a", "orders.b"}

    page.settings(tables="history")
    page.declare(
        "topics:\n  - {topic: payments.authorised, owner: payments, num_partitions: 12, replication_factor: 3,"
        " configs: {retention.ms: 7d}}\n",
        "--run-id",
        "load-1",
    )
    page.do("plan", "--run-id", "pr-17")
    page.do("apply", "--run-id", "pr-17", "--wait-visible", "30")
    alter(brokers, "payments.authorised", retention_ms=FORTNIGHT)
    for number in (7, 8, 9):
        page.do("drift", "--run-id", f"audit-{number}")
    page.run("topics show", **{"version 3": "version 1"})


def test_policies(page: Page, brokers: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    page.write("house_rules.py", page.block("from collections.abc import Mapping"))
    page.settings(page.block('[[policies.create]]\nuse = "house_rules'))
    page.declare(
        "defaults: {owner: payments, replication_factor: 1, num_partitions: 1}\ntopics:\n"
        "  - {topic: payments.audit, labels: {tier: gold}, configs: {retention.ms: 14d}}\n"
        "  - {topic: payments.raw}\n"
        "  - {topic: payments.short, labels: {tier: gold}, configs: {retention.ms: 7d}}\n"
    )
    monkeypatch.delitem(sys.modules, "house_rules", raising=False)
    # What PYTHONPATH=. does when Python starts.
    monkeypatch.syspath_prepend(".")
    try:
        page.run("policies check")
        page.do("provision", "--run-id", "tiers", "--wait-visible", "30", code=4)
        shown = page.do("runs", "show", "tiers")
    finally:
        sys.modules.pop("house_rules", None)
    assert page.block("  ! create payments.raw") in shown
    assert set(live(brokers, "payments.")) == {"payments.short"}


def test_proof(page: Page, spark: SparkSession) -> None:
    for number in (1, 2):
        page.declare(f"topics:\n  - {{topic: payments.proven{number}, num_partitions: 1, replication_factor: 1}}\n")
        page.do("provision", "--run-id", f"proven-{number}")
    changed, ledger = {"outcome": "'failed'"}, ledger_of(spark)
    spark.sql(f"ALTER TABLE {ledger.sql_name(AUDIT)} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    ledger.update(AUDIT, "run_id = 'proven-1' AND phase = 'apply'", changed)
    rows = str(ledger.read(AUDIT).where(F.col("run_id") == "proven-1").count())
    page.values |= {"212": "2", "12": rows, "20261120T080000000000Z-0c3d2e1f": "proven-1"}
    page.values |= {"20261101T080000000000Z-1c9bf3d0": "proven-1", "20261124T200000000000Z-2a4abc90": "proven-2"}
    page.run("runs verify", code=4)

    secrets = {"earlier": "e" * 32, "new": "n" * 32}
    for number, (name, secret) in enumerate(secrets.items(), 3):
        page.write(f"{name}.key", secret)
        page.settings(f'[proof]\nkey = "file:{Path.cwd() / f"{name}.key"}"\n', f"{name}-key.toml", "keyed")
        page.settings(f'[proof]\nkey = "file:{Path.cwd() / f"{name}.key"}"\n', tables="keyed")
        page.declare(f"topics:\n  - {{topic: payments.proven{number}, num_partitions: 1, replication_factor: 1}}\n")
        page.do("provision", "--run-id", f"proven-{number}")
    signed = ledger_of(spark, "keyed").read(RUNS).selectExpr("run_id", "proof['key_id'] AS key_id")
    ids = {row["run_id"]: row["key_id"] for row in signed.collect()}
    verified = page.do("runs", "verify", "--other-key", ids["proven-3"])
    page.values |= {"1b2c3d4e": ids["proven-3"], "9a8b7c6d": ids["proven-4"], "DIGEST": verified.split()[-1]}
    page.run("runs verify --config new-key.toml")
    page.run("runs verify --config earlier-key.toml")


def test_prune(page: Page, brokers: EmbeddedKafka, spark: SparkSession) -> None:
    names = ("tmp.a", "tmp.b", "tmp.c", "kept.old")
    make(brokers, *names, configs={"retention.ms": "-1"})
    for name in names:
        write(brokers, name, at=datetime.now(UTC) - timedelta(days=40))
    page.run("prune", code=5)
    page.run("runs show")
    page.run("runs approve")
    assert set(live(brokers, "tmp.")) == {"tmp.a", "tmp.b", "tmp.c"}
    page.run("apply")
    assert (set(live(brokers, "tmp.")), set(live(brokers, "kept."))) == (set(), {"kept.old"})

    _observe_use(page, ledger_of(spark))
    page.run("prune --config my.toml --declared")
    proposed = Path("unused.yaml").read_text(encoding="utf-8")
    assert re.findall(r'topic: "?([\w.]+)', proposed) == ["payments.idle1", "payments.idle2"]


def _observe_use(page: Page, ledger: Ledger) -> None:
    """Write rows as audits with usage of 31 days do, about declared topics: 32 are used, 7 young and 2 idle."""
    now = datetime.now(UTC)
    used = {f"payments.settled{n or ''}": [31, 1] for n in range(32)}
    young = {f"payments.new{n or ''}": [1] for n in range(7)}
    days = {**used, **young, "payments.idle1": [31, 1], "payments.idle2": [31, 1]}
    page.declare("defaults: {owner: payments}\ntopics:\n" + "".join(f"  - {{topic: {name}}}\n" for name in days))
    member = [{"group": "payments-ledger", "state": "Stable", "members": 1, "lag": 0}]
    rows = [
        {
            "cluster": "orders",
            "topic": topic,
            "topic_id": topic,
            "observed_at": now - timedelta(days=ago),
            "bytes": 2048,
            "end_offset": 7,
            "groups": member if topic in used else [],
            "reasons": {},
        }
        for topic, agos in days.items()
        for ago in agos
    ]
    live_now = [{"cluster": "orders", "topic": topic, "topic_id": topic, "permitted": True} for topic in days]
    for table, written in ((OBSERVED, live_now), (USAGE, rows)):
        ledger.ensure(table)
        ledger.append(table, ledger.rows(table, written), app_id=f"how-to {table.name}", version=1)


def test_queries(page: Page) -> None:
    page.declare("topics: [{topic: payments.authorised, num_partitions: 1, replication_factor: 1}]\n")
    page.do("provision", "--wait-visible", "30")
    page.do("drift", "--usage")
    for table in ("changes WHERE topic", "unused_topics", "changes WHERE changed_at"):
        answer = page.run(f'sql --config my.toml "SELECT * FROM {table}').stdout
        assert ("payments.authorised" in answer) == table.startswith("changes"), answer


def test_rename(page: Page, brokers: EmbeddedKafka) -> None:
    page.declare("topics: [{topic: pay-auth, owner: payments, num_partitions: 5, replication_factor: 1}]\n")
    page.do("provision", "--wait-visible", "30")
    page.write("payments.yaml", page.block("cluster: orders"))
    page.run("plan")
    page.run("runs approve")
    page.run("apply")
    topics = live(brokers, "pay")
    assert {name: topic.num_partitions for name, topic in topics.items()} == {"pay-auth": 5, "payments.authorised": 5}
    assert set_on(brokers, "payments.authorised") == {"payments.authorised": {"retention.ms": FORTNIGHT}}


def test_replicas(page: Page, brokers: EmbeddedKafka) -> None:
    make(brokers, "payments.authorised", num_partitions=None, replication_factor=None, assignments={0: (3,), 1: (1,)})
    page.run("rebalance", code=5)
    shown = page.do("runs", "show", "drain-3")
    stopped = re.search(r"--allow moves=(\d+)", shown)
    assert stopped, shown
    page.run("runs approve", N=stopped[1])
    page.run("apply")
    assert all(3 not in places for places in replicas(brokers, "payments.authorised").values())

    page.do("rebalance", "--cluster", "orders", "--drain", "2", "--run-id", "drain-2", code=5)
    page.run("runs abandon", ID="drain-2")
    page.do("apply", "--run-id", "drain-2", code=2)


def test_reports(page: Page) -> None:
    row = "{topic: payments.authorised, owner: payments, num_partitions: 1, replication_factor: 1}"
    page.declare(f"topics: [{row}]\n")
    page.do("provision", "--run-id", "reported", "--wait-visible", "30")
    page.run("report", ID="reported")
    page.run("report --config my.toml --since")
    page.do("drift", "--usage")
    page.run("report --config my.toml --estate")
    names = ("run.html", "week.html", "estate.html")
    # Names may be broken at their dots.
    written = [Path(name).read_text(encoding="utf-8").replace("<wbr>", "") for name in names]
    # Nothing ran in that week, and the estate is told by owner.
    assert ["payments" in text for text in written] == [True, False, True]
    assert "payments.authorised" in written[0]
    page.write("reports/run.html", written[0])
    page.run("report --config my.toml --index")
    assert 'href="run.html"' in (Path("reports") / "index.html").read_text(encoding="utf-8")


def test_scope(page: Page, brokers: EmbeddedKafka) -> None:
    common = "defaults: {owner: payments, num_partitions: 1, replication_factor: 1}\ntopics:\n"
    page.declare(common + "".join(f"  - {{topic: payments.pending{number}}}\n" for number in range(3)))
    page.write("topics/payments.yaml", f"cluster: orders\n{common}  - {{topic: payments.authorised}}\n")
    planned = page.run("plan topics/")
    assert page.block("scope: the files;") in planned.output
    assert live(brokers, "payments.") == {}
    page.run("apply topics/")
    assert set(live(brokers, "payments.")) == {"payments.authorised"}


def test_serve(page: Page, brokers: EmbeddedKafka) -> None:
    make(brokers, "payments.legacy")
    common = "defaults: {num_partitions: 1, replication_factor: 1}\ntopics:\n"
    page.declare(f"{common}  - {{topic: payments.legacy, state: absent}}\n  - {{topic: payments.authorised}}\n")
    page.run("plan", code=5)
    page.run("runs approve", N="1")
    page.run("apply")
    assert set(live(brokers, "payments.")) == set(), "the create is outside"


def test_undo(page: Page, brokers: EmbeddedKafka) -> None:
    def declared(days: int) -> str:
        common = "num_partitions: 1, replication_factor: 1, owner: payments"
        return f"topics:\n  - {{topic: payments.authorised, {common}, configs: {{retention.ms: {days}d}}}}\n"

    page.settings('[changes]\nconfigs = "declared"\n')
    page.declare(declared(7))
    page.do("provision", "--wait-visible", "30")
    page.declare(declared(14))
    page.do("provision", "--run-id", "two-weeks")
    assert set_on(brokers, "payments.authorised")["payments.authorised"]["retention.ms"] == FORTNIGHT
    page.declare(declared(7))
    page.run("runs revert", code=5)
    page.run("runs show")
    page.run("runs approve")
    page.run("apply")
    assert set_on(brokers, "payments.authorised")["payments.authorised"]["retention.ms"] == WEEK
    assert "nothing to" in page.do("provision")
