"""`policies list`, `policies check` and `policies explain`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from topicledger.cli import explain, explain_resources, live_policies
from topicledger.cli.options import Options, common, open_ledger, open_settings
from topicledger.config.reading import load_settings, read_settings
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.ledger.session import get_session
from topicledger.resources import building
from topicledger.text import printable


@click.group("policies")
def policies_group() -> None:
    """Try policies: list the built-in ones, check those of the settings, explain their verdicts on a topic."""


@policies_group.command("list")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Run settings (TOML): list your own policies, too.",
)
@click.option("--format", "as_format", type=click.Choice(["table", "json"]), default="table", help="On stdout.")
def policies_list(config: Path | None, as_format: str) -> None:
    """The policies to choose from, with their settings."""
    try:
        explain.list_policies(None if config is None else load_settings(config), as_json=as_format == "json")
    except TopicLedgerError as error:
        click.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)


@policies_group.command("check")
@common
def policies_check(options: Options) -> int:
    """Check the settings' policies. Reads no table and no cluster."""
    settings, problems = read_settings(options.config)
    get_session("policies", verbose=options.verbose)
    return explain.check_policies(settings, problems, as_json=options.format == "json")


@policies_group.command("explain")
@click.option("--topic", help="The topic, as its manifest names it.")
@click.option("--acl", metavar="TEXT", help="Or the right, as the column `resource` of plans names it.")
@click.option("--quota", metavar="TEXT", help="Or the entity that has quotas, named likewise.")
@common
def policies_explain(options: Options, topic: str | None, acl: str | None, quota: str | None) -> int:
    """Each rule, its inputs and its verdict for one topic, right or quota of a --cluster. Asks it; changes nothing."""
    beside = [(option, text) for option, text in (("acl", acl), ("quota", quota)) if text is not None]
    if (topic is not None) + len(beside) != 1:
        raise UsageError("policies explain needs one --topic, --acl or --quota: what is to be explained")
    if len(options.cluster) != 1:
        raise UsageError("policies explain needs one --cluster: the cluster of the topic")
    settings = open_settings(options)
    building.check(settings)
    ledger = open_ledger(options, settings, "policies")
    (cluster,) = settings.select(options.cluster)
    as_json = options.format == "json"
    for option, text in beside:
        return explain_resources.explain(ledger, settings, cluster, option, text, as_json=as_json)
    return explain.explain(ledger, settings, cluster, str(topic), as_json=as_json)


@policies_group.command("audit")
@click.option(
    "--policy", "named", multiple=True, metavar="NAME", help="Only this policy of [[policies.create]]; may be repeated."
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where a topic breaks a policy.")
@common
def policies_audit(options: Options, named: tuple[str, ...], detailed_exitcode: bool) -> int:
    """Judge the topics that exist by the policies of creates: which of them would be refused today.

    Asks the clusters; changes nothing.
    """
    settings = open_settings(options)
    building.check(settings)
    ledger = open_ledger(options, settings, "policies")
    clusters = settings.select(options.cluster)
    return live_policies.audit_policies(ledger, settings, clusters, named, options, detailed=detailed_exitcode)
