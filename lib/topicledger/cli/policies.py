"""`policies list`, `policies check` and `policies explain`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from topicledger.cli import explain, explain_resources, live_policies, upgrades
from topicledger.cli.options import THE_CLUSTER, Options, ReadingCommand, common_with, open_ledger, open_settings
from topicledger.cli.scope import check_owners, topic_scope_options
from topicledger.config.reading import load_settings, read_settings
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.ledger.session import get_session
from topicledger.model.scope import Scope
from topicledger.model.upgrades import checked_version
from topicledger.resources import building
from topicledger.resources.registry import KINDS
from topicledger.text import any_of, printable


@click.group("policies", short_help="List, check, explain and try policies.")
def policies_group() -> None:
    """Try policies: list the built-in ones, check those of the settings, explain their verdicts on a topic."""


@policies_group.command(
    "list", cls=ReadingCommand, short_help="List the available policies.", epilog="Example: topicledger policies list"
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Run settings (TOML): list your own policies, too.",
)
@click.option("--format", "as_format", type=click.Choice(["table", "json"]), default="table", help="On stdout.")
def policies_list(config: Path | None, as_format: str) -> None:
    """List the available policies with their settings."""
    try:
        explain.list_policies(None if config is None else load_settings(config), as_json=as_format == "json")
    except TopicLedgerError as error:
        click.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)


@policies_group.command(
    "check",
    cls=ReadingCommand,
    short_help="Check the settings' policies.",
    epilog="Example: topicledger policies check",
)
@common_with(without=("run_id", "cluster", "result_file"))
def policies_check(options: Options) -> int:
    """Check the settings' policies. Reads no table and no cluster."""
    settings, problems = read_settings(options.config)
    get_session("policies", verbose=options.verbose, remote=settings.spark.remote)
    return explain.check_policies(settings, problems, as_json=options.format == "json")


def _beside_topics(command: Callable[..., int]) -> Callable[..., int]:
    """Add an option for each kind of resource beside topics."""
    for kind in reversed(KINDS):
        option = click.option(kind.names.option, metavar="TEXT", help=kind.words.explain_help)
        command = option(command)
    return command


@policies_group.command(
    "explain",
    cls=ReadingCommand,
    short_help="Explain the policies' verdicts on a resource.",
    epilog="Example: topicledger policies explain --topic payments.authorised --cluster orders",
)
@click.option("--topic", metavar="NAME", help="The topic, as its manifest names it.")
@_beside_topics
@common_with(without=("run_id", "result_file"), cluster=THE_CLUSTER)
def policies_explain(options: Options, topic: str | None, **given: str | None) -> int:
    """Explain each policy, its inputs and its verdict for one resource of a --cluster. Changes nothing."""
    beside = [(kind, text) for kind in KINDS if (text := given[kind.resource_type]) is not None]
    if (topic is not None) + len(beside) != 1:
        named = any_of(["--topic", *(kind.names.option for kind in KINDS)])
        raise UsageError(f"policies explain needs one {named}")
    if len(options.cluster) != 1:
        raise UsageError("policies explain needs one --cluster: the cluster of the topic")
    settings = open_settings(options)
    building.check(settings)
    ledger = open_ledger(options, settings, "policies")
    (cluster,) = settings.select(options.cluster)
    as_json = options.format == "json"
    for kind, text in beside:
        return explain_resources.explain(ledger, settings, cluster, kind, text, as_json=as_json)
    return explain.explain(ledger, settings, cluster, str(topic), as_json=as_json)


@policies_group.command(
    "audit",
    cls=ReadingCommand,
    short_help="Evaluate live topics by create policies.",
    epilog="Example: topicledger policies audit --cluster orders",
)
@click.option(
    "--policy", "named", multiple=True, metavar="NAME", help="Only this policy of [[policies.create]]; may be repeated."
)
@click.option(
    "--for-kafka",
    metavar="VERSION",
    help="Instead: the configs that an upgrade to this version of Kafka breaks or changes.",
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 if there is any finding.")
@topic_scope_options
@common_with(without=("run_id",))
def policies_audit(
    options: Options, limits: Scope, named: tuple[str, ...], for_kafka: str | None, detailed_exitcode: bool
) -> int:
    """Evaluate existing topics by the policies of creates: which of them would be refused now?

    Asks the clusters; changes nothing. With --for-kafka, evaluates declared and live configs instead.
    """
    if for_kafka is not None and named:
        raise UsageError("--for-kafka evaluates no policy: leave out --policy")
    version = None if for_kafka is None else checked_version(for_kafka)
    settings = open_settings(options)
    building.check(settings)
    ledger = open_ledger(options, settings, "policies")
    clusters = settings.select(options.cluster)
    check_owners(ledger, settings, limits.owners)
    if version is not None:
        return upgrades.audit_upgrade(ledger, settings, clusters, version, limits, options, detailed=detailed_exitcode)
    return live_policies.audit_policies(ledger, settings, clusters, named, limits, options, detailed=detailed_exitcode)
