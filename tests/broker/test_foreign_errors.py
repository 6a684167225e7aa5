"""A token provider that fails, as anybody else's code may: its cluster fails alone, and its words show nowhere."""

from __future__ import annotations

import os
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import commands, tokens
from tests.certificates import Certificates
from tests.harness import Estate, cluster_settings, topics
from tests.waiting import until
from topicledger.config.settings import ClusterSettings, KafkaSettings, WhoObserves
from topicledger.errors import ClusterError, SecretError
from topicledger.kafka import ClusterAdmin, RequestLost
from topicledger.observe.topics import observe
from topicledger.resources.topics.observe.configs import observe_configs
from topicledger.resources.topics.observe.topic_use import read_consumer_groups
from topicledger.schemas import AUDIT
from topicledger_testing.embedded_kafka import EmbeddedKafka

KAFKA = KafkaSettings(connect_timeout=4.0)
WITHOUT_ITS_TEXT = "RuntimeError raised by tests.tokens, whose text is not shown"


def options(authority: Certificates, provider: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority.authority),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": f"{tokens.__name__}:{provider}",
    }


def bad(
    kafka_secured: EmbeddedKafka, authority: Certificates, provider: str, listener: str = "TOKEN"
) -> ClusterSettings:
    (address,) = kafka_secured.addresses(listener)
    return cluster_settings("bad", address, **options(authority, provider))


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def files_with_the_secret(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    return [path for path in files if tokens.SECRET.encode() in path.read_bytes()]


@pytest.mark.thorough
def test_a_provider_that_cannot_be_made_is_an_error_without_its_text(
    kafka_secured: EmbeddedKafka, authority: Certificates
) -> None:
    with pytest.raises(SecretError, match=r"clusters\.bad\.client\.sasl_oauth_token_provider.*RuntimeError") as error:
        ClusterAdmin(bad(kafka_secured, authority, "not_made"), KAFKA)
    assert tokens.SECRET not in printed(error.value)


def test_a_provider_without_a_token_is_an_error_without_its_text(
    kafka_secured: EmbeddedKafka, authority: Certificates
) -> None:
    with pytest.raises(ClusterError, match=rf"cluster bad can't be reached.*{WITHOUT_ITS_TEXT}") as error:
        ClusterAdmin(bad(kafka_secured, authority, "no_token"), KAFKA)
    assert tokens.SECRET not in printed(error.value)


def test_a_provider_that_has_no_token_at_re_authentication_loses_requests_without_its_text(
    kafka_secured: EmbeddedKafka, authority: Certificates
) -> None:
    """KIP-368"""
    lost: list[RequestLost] = []
    settings = bad(kafka_secured, authority, "no_token_at_reauthentication", "TOKENAGAIN")
    with ClusterAdmin(settings, KAFKA) as admin:

        def asked_in_vain() -> bool:
            try:
                admin.describe_cluster()
            except RequestLost as error:
                lost.append(error)
            return any(WITHOUT_ITS_TEXT in str(error) for error in lost)

        assert not asked_in_vain()
        until(asked_in_vain, seconds=30)
    assert tokens.SECRET not in "".join(map(printed, lost))


@pytest.mark.thorough
@pytest.mark.parametrize("who", ["driver", "executors"])
@pytest.mark.parametrize("provider", ["not_made", "no_token"])
def test_the_other_clusters_are_observed_all_the_same(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    kafka_secured: EmbeddedKafka,
    authority: Certificates,
    provider: str,
    who: WhoObserves,
) -> None:
    asking = replace(KAFKA, observe=who)
    clusters = [cluster_settings("good", kafka), bad(kafka_secured, authority, provider)]
    asked = spark.createDataFrame([("good", "foreign.none"), ("bad", "foreign.none")], "cluster string, topic string")
    seen = observe(spark, clusters, asking, asked)
    assert seen.statuses["good"].error is None
    named = spark.createDataFrame(
        [(name, "foreign.none", "id", "id", True) for name in ("good", "bad")],
        "cluster string, topic string, cluster_id string, topic_id string, permitted boolean",
    )
    configs = observe_configs(spark, clusters, asking, named)
    assert set(configs.errors) == {"bad"}
    groups = {row["cluster"]: row["error"] for row in read_consumer_groups(spark, clusters, asking, asked).collect()}
    assert set(groups) == {"bad"}
    for told in (seen.statuses["bad"].error, configs.errors["bad"], groups["bad"]):
        assert "bad" in str(told)
        assert "RuntimeError" in str(told)
        assert tokens.SECRET not in str(told)


@pytest.mark.thorough
@pytest.mark.parametrize("provider", [pytest.param("not_made_here", marks=pytest.mark.thorough), "no_token_here"])
def test_on_the_driver_that_cluster_alone_stays_open_until_its_provider_works(
    spark: SparkSession,
    kafka: EmbeddedKafka,
    kafka_secured: EmbeddedKafka,
    authority: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    provider: str,
) -> None:
    """Executors observe both clusters; then the driver can't sign in to one of them."""
    clusters = {"good": kafka, "bad": bad(kafka_secured, authority, provider)}
    estate = Estate(spark, tmp_path / "ledger", clusters, kafka=KAFKA)
    names = [f"foreign.{provider}.{number}" for number in range(3)]
    for cluster in clusters:
        estate.declare(*topics(names), cluster=cluster)
    monkeypatch.setattr(tokens, "failing", True)
    summary = estate.run("provision", run_id="foreign", wait_visible=30.0)
    assert summary.exit_code == 1
    (problem,) = summary.problems
    assert "bad" in problem
    assert "RuntimeError" in problem
    applied = ended(estate)
    assert applied == {("good", name): "ok" for name in names}
    assert tokens.SECRET not in f"{summary}" + "".join(capfd.readouterr())
    assert files_with_the_secret(tmp_path) == []

    monkeypatch.setattr(tokens, "failing", False)
    assert estate.run("provision", run_id="foreign", wait_visible=30.0).exit_code == 0
    assert ended(estate) == {(cluster, name): "ok" for cluster in clusters for name in names}


def ended(estate: Estate) -> dict[tuple[str, str], str]:
    rows = estate.rows(AUDIT, "foreign")
    return {(row["cluster"], row["topic"]): row["outcome"] for row in rows if row["phase"] == "apply"}


@pytest.mark.thorough
def test_a_verbose_job_shows_the_text_nowhere(
    spark: SparkSession, kafka: EmbeddedKafka, kafka_secured: EmbeddedKafka, authority: Certificates, tmp_path: Path
) -> None:
    (address,) = kafka_secured.addresses("TOKEN")
    client = "\n".join(f'{key} = "{value}"' for key, value in options(authority, "no_token").items())
    more = f"[clusters.bad.client]\n{client}\n[kafka]\nconnect_timeout = 5\n"
    config = commands.settings_file(tmp_path, {"good": kafka.bootstrap_servers, "bad": [address]}, more=more)
    estate = Estate(spark, tmp_path / "ledger", {"good": kafka})
    for cluster in ("good", "bad"):
        estate.declare(*topics(["foreign.verbose"]), cluster=cluster)
    arguments = commands.command("provision", "--config", str(config), "--run-id", "foreign", "--verbose")
    importable = os.pathsep.join(map(str, (commands.REPOSITORY / "lib", commands.REPOSITORY)))
    done = commands.run(arguments, TOPICLEDGER_LOG_DIR=str(tmp_path / "logs"), PYTHONPATH=importable)
    assert done.returncode == 1, done.stderr[-3000:]
    assert WITHOUT_ITS_TEXT in done.stderr
    assert tokens.SECRET not in done.stdout + done.stderr
    assert ended(estate) == {("good", "foreign.verbose"): "ok"}
    assert files_with_the_secret(tmp_path) == []
