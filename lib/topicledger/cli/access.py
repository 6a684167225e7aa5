"""`access who` and `access what`: effective permissions by a cluster's ACLs or by declared ACLs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console

from topicledger.cli.options import (
    THE_CLUSTER,
    Options,
    ReadingCommand,
    Renamed,
    common_with,
    open_ledger,
    open_settings,
    print_result,
)
from topicledger.config.roots import missing_root
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ExitCode, UsageError
from topicledger.observe.clusters import Recorded, recorded_if_any
from topicledger.resources.acls import permissions
from topicledger.resources.acls.permissions import Known, Permission
from topicledger.text import cell, document, grid_of


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """Effective permissions, in order."""

    cluster: str
    source: str
    """observed or declared."""
    rights: Sequence[Permission]
    notes: Sequence[str]

    def to_json(self) -> str:
        """Return the versioned result document."""
        return document(ExitCode.DONE, asdict(self))


def _asked(command: Callable[..., int]) -> Callable[..., Any]:
    """Add the options of both commands."""
    operation = click.option("--operation", metavar="OP", help="Only this operation, by Kafka's name.")
    source = click.option(
        "--acls",
        "source",
        cls=Renamed,
        former=["--from"],
        type=click.Choice(["observed", "declared"]),
        default="observed",
        help="Use the cluster's current ACLs, or those that the table `acls` declares.",
    )
    return operation(source(command))


@click.group("access", short_help="Show effective permissions.")
def access_group() -> None:
    """Show effective permissions, as Kafka's authorizer decides them."""


@access_group.command(
    "who",
    cls=ReadingCommand,
    short_help="Show who may do what on one --cluster.",
    epilog="Example: topicledger access who --topic payments.authorised --cluster orders",
)
@click.option("--topic", multiple=True, metavar="NAME", help="Show permissions on this topic; may be repeated.")
@click.option(
    "--group", multiple=True, metavar="NAME", help="Show permissions on this consumer group; may be repeated."
)
@_asked
@common_with(without=("run_id",), cluster=THE_CLUSTER)
def access_who(
    options: Options, topic: tuple[str, ...], group: tuple[str, ...], operation: str | None, source: str
) -> int:
    """Show who may do what to topics and groups of one --cluster, and by which ACLs. Changes nothing."""
    if not topic and not group:
        raise UsageError("access who needs a --topic or a --group")
    resources = [
        *(("TOPIC", each) for each in dict.fromkeys(topic)),
        *(("GROUP", each) for each in dict.fromkeys(group)),
    ]
    return _answered(options, operation, source, lambda known: permissions.who(known, resources, operation))


@access_group.command(
    "what",
    cls=ReadingCommand,
    short_help="Show what a principal may do on one --cluster.",
    epilog="Example: topicledger access what --principal User:billing --cluster orders",
)
@click.option("--principal", required=True, help="The principal, such as User:payments.")
@_asked
@common_with(without=("run_id",), cluster=THE_CLUSTER)
def access_what(options: Options, principal: str, operation: str | None, source: str) -> int:
    """Show what a principal may do on one --cluster, and by which ACLs. Changes nothing."""
    if not principal.startswith("User:"):
        raise UsageError(f"--principal is {principal}; Kafka's authorizer knows only User:name")
    return _answered(options, operation, source, lambda known: permissions.what(known, principal, operation))


def _answered(
    options: Options, operation: str | None, source: str, answer: Callable[[Known], Iterator[Permission]]
) -> ExitCode:
    if len(options.cluster) != 1:
        raise UsageError("access needs one --cluster")
    if operation is not None:
        permissions.require_operation(operation)
    settings = open_settings(options)
    (cluster,) = settings.select(options.cluster)
    if source == "observed":
        known = permissions.observed(settings, cluster, _recorded(options, settings, cluster))
    else:
        known = permissions.declared(open_ledger(options, settings, "access"), settings, cluster)
    found = Permissions(cluster=cluster.name, source=source, rights=list(answer(known)), notes=known.notes)
    print_result(found.to_json(), lambda console: render(found, console), options)
    return ExitCode.DONE


def _recorded(options: Options, settings: Settings, cluster: ClusterSettings) -> Mapping[str, Recorded]:
    """Return the rows of `clusters` if only they may say which cluster is meant: reading them starts Spark."""
    if cluster.cluster_id is not None or missing_root(settings.tables.root) is not None:
        return {}
    return recorded_if_any(open_ledger(options, settings, "access"))


def render(answer: Permissions, console: Console) -> None:
    """Print effective permissions, a row for each."""
    console.print(f"cluster {cell(answer.cluster)}, ACLs as {answer.source}")
    if answer.rights:
        grid = grid_of("principal", "resource", "operation", "host", "result", "because", "except")
        for each in answer.rights:
            resource = f"{each.resource_type} {each.pattern_type} {each.resource_name}"
            because = "\n".join(each.acls) or each.because
            values = (each.principal, resource, each.operation, each.host, each.result)
            texts = (_lines(because), _lines("\n".join(each.exceptions)))
            grid.add_row(*map(cell, values), *texts)
        console.print(grid)
    else:
        console.print("nobody may do anything")
    for note in answer.notes:
        console.print(cell(note), soft_wrap=True)


def _lines(text: str) -> str:
    """Return a cell of several lines, each safe to print."""
    return "\n".join(cell(line) for line in text.split("\n"))
