"""Sessions of a Spark Connect server, and who asks the clusters there, without a server."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from topicledger import frames
from topicledger.config.settings import KafkaSettings
from topicledger.errors import TopicLedgerError
from topicledger.ledger import session, who
from topicledger.observe import cluster_queries


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something listens at the address of a server that isn't there."""
    monkeypatch.setattr(session, "_require_answer", lambda _: None)


def builder(result: object) -> Any:
    """A builder whose session is this one, or which fails with this error."""

    def get_or_create() -> object:
        if isinstance(result, Exception):
            raise result
        return result

    def remote(address: str) -> object:
        assert address == "sc://spark:15002/;token=s3cr3t"
        return SimpleNamespace(getOrCreate=get_or_create)

    return SimpleNamespace(remote=remote)


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ImportError("no", name="grpc"), r"lacks a package \(grpc\): pip install 'pyspark\[connect\]=="),
        (
            RuntimeError("Connection refused\n  at x"),
            "server sc://spark:15002/ can't be used: Connection refused: check",
        ),
        (RuntimeError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta."), "has no Delta: give Spark"),
    ],
    ids=str,
)
def test_a_server_that_cannot_be_used_is_an_error_of_one_line(error: Exception, message: str) -> None:
    with pytest.raises(TopicLedgerError, match=message) as caught:
        session._client_of("sc://spark:15002/;token=s3cr3t", builder(error))
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sc://spark:15002;token=s3cr3t", "server sc://spark:15002 can't be used: a slash is missing before the first"),
        ("sc://spark;token=s3cr3t", "server sc://spark can't be used: a slash is missing before the first semicolon"),
        ("sc://spark:port/;token=s3cr3t", "server sc://spark:port/ can't be used: Port could not be cast to integer"),
    ],
)
def test_an_address_that_cannot_be_read_does_not_show_its_token(
    monkeypatch: pytest.MonkeyPatch, address: str, message: str
) -> None:
    for name in session._PROXIES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TopicLedgerError, match=message) as caught:
        session._client_of(address, builder(None))
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("quoted", ["use_ssl=true;token=s3cr3t%2F=", "s3cr3t%2F=", "'15002/;token=s3cr3t%2F='"])
def test_an_error_that_quotes_parameters_of_a_server_does_not_show_them(quoted: str) -> None:
    def remote(_: str) -> object:
        raise ValueError(f"invalid, which is true: {quoted}")

    failing: Any = SimpleNamespace(remote=remote)
    with pytest.raises(TopicLedgerError, match="invalid, which is true: ") as caught:
        session._client_of("sc://spark:15002/;use_ssl=true;token=s3cr3t%2F=", failing)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.usefixtures("answers")
def test_a_server_of_another_version_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    same, other = SimpleNamespace(version=pyspark.__version__), SimpleNamespace(version="4.9.1")
    assert session._client_of("sc://spark:15002/;token=s3cr3t", builder(same)) is same
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        session._client_of("sc://spark:15002/;token=s3cr3t", builder(other))
    assert "the server sc://spark:15002/ has Spark 4.9.1, this client 4." in caplog.text
    assert caplog.messages[-1].endswith(": untested; pip install 'pyspark[connect]==4.9.*'")


def test_a_server_that_is_not_there_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's client would try for ten minutes; a proxy may know an address that this machine doesn't."""
    for name in session._PROXIES:
        monkeypatch.delenv(name, raising=False)
    session_of = SimpleNamespace(version=pyspark.__version__)
    reached = SimpleNamespace(remote=lambda _: SimpleNamespace(getOrCreate=lambda: session_of))
    with pytest.raises(TopicLedgerError, match=r"server sc://127\.0\.0\.1:1/ can't be used: .*refused: check"):
        session._client_of("sc://127.0.0.1:1/;token=s3cr3t", reached)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert session._client_of("sc://127.0.0.1:1/;token=s3cr3t", reached) is session_of


def test_the_environment_precedes_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(session, "_client_of", lambda server, _: asked.append(server))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv(session.REMOTE, raising=False)
    session.get_session("plan", remote="sc://settings")
    monkeypatch.setenv(session.REMOTE, "sc://environment")
    session.get_session("plan", remote="sc://settings")
    assert asked == ["sc://settings", "sc://environment"]


@pytest.mark.parametrize(
    ("observe", "remote", "expected"),
    [("auto", False, False), ("auto", True, True), ("driver", False, True), ("executors", True, False)],
)
def test_the_client_of_a_server_asks_clusters_itself_by_default(
    monkeypatch: pytest.MonkeyPatch, observe: Any, remote: bool, expected: bool
) -> None:
    monkeypatch.setattr(cluster_queries, "is_remote", lambda: remote)
    kafka = KafkaSettings(observe=observe)
    assert cluster_queries.asked_by_driver(kafka, cluster_queries.FEW_CLUSTERS + 1) is expected


def test_rows_that_a_server_computed_need_no_view(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view by which the query is named goes at once, also if the query fails; the rows stay."""
    monkeypatch.setattr(frames, "is_remote", lambda: True)
    session = spark.newSession()
    rows = frames.materialised(session.range(3))
    _, metrics = frames.with_metrics(rows, [F.count(F.lit(1)).alias("rows")], lambda each: each.where("id > 0"))
    with pytest.raises(PySparkException):
        frames.materialised(session.sql("SELECT raise_error('no')"))
    assert [view["viewName"] for view in session.sql("SHOW VIEWS").collect() if view["isTemporary"]] == []
    assert sorted(row["id"] for row in rows.collect()) == [0, 1, 2]
    assert metrics == {"rows": 3}


@pytest.mark.parametrize(("remote", "delta"), [(False, "3.9.9"), (True, "unknown")])
def test_a_run_is_recorded_with_the_spark_that_ran_it(
    monkeypatch: pytest.MonkeyPatch, remote: bool, delta: str
) -> None:
    monkeypatch.setattr(who, "is_remote", lambda: remote)
    monkeypatch.setattr(who, "delta_version", lambda: "3.9.9")
    spark: Any = SimpleNamespace(version="9.9.9")
    recorded = who.versions(spark)
    assert (recorded["spark"], recorded["delta"]) == ("9.9.9", delta)
