"""Plans that don't follow from manifests: `runs revert`, `rebalance` and `prune`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from topicledger.cli.durations import Duration
from topicledger.cli.options import Options, Renamed, common, common_with, open_settings, requested_by_option
from topicledger.cli.proposing import Proposing, propose
from topicledger.cli.provisioning import deadline_option, detailed_option, plan_request, run_request
from topicledger.cli.scope import named, pattern, scope_options
from topicledger.config.settings import Owners
from topicledger.errors import UsageError
from topicledger.model.moves import Rebalance
from topicledger.model.prune import Prune
from topicledger.model.scope import Scope


@click.command(
    "revert",
    short_help="Plan to undo the changes of a run.",
    epilog="Example: topicledger runs revert nightly-7",
)
@click.option("--plan-id", metavar="ID", help="The id of the plan; default: a new sortable id.")
@click.option("--deletes", is_flag=True, help="Delete the topics that the run created, within the guards.")
@scope_options
@detailed_option
@deadline_option
@requested_by_option
@common_with(positional="RUN_ID")
def revert(
    options: Options,
    plan_id: str | None,
    deletes: bool,
    limits: Scope,
    detailed_exitcode: bool,
    deadline: float | None,
    requested_by: str | None,
) -> int:
    """Plan to undo the changes of the run RUN_ID. Changes nothing: `apply` the plan."""
    if options.run_id is None:
        raise UsageError("runs revert needs RUN_ID: the run to undo; see `runs list`")
    return run_request(
        replace(
            plan_request(options, requested_by, detailed_exitcode, limits),
            run_id=plan_id,
            reverts=options.run_id,
            deletes=deletes,
        ),
        options,
        deadline,
    )


@click.command(
    "rebalance",
    short_help="Plan moves for a broker that goes or comes.",
    epilog="Example: topicledger rebalance --cluster orders --drain 3",
)
@click.option("--drain", type=click.IntRange(min=0), metavar="BROKER", help="Move all replicas away from this broker.")
@click.option("--fill", type=click.IntRange(min=0), metavar="BROKER", help="Give this broker its share of replicas.")
@detailed_option
@deadline_option
@requested_by_option
@common_with(cluster="Name of the cluster; required if the settings have several.")
def rebalance(
    options: Options,
    drain: int | None,
    fill: int | None,
    detailed_exitcode: bool,
    deadline: float | None,
    requested_by: str | None,
) -> int:
    """Plan moves of all topics for a broker that is removed or added. Changes nothing: `apply` the plan."""
    if (drain is None) == (fill is None):
        raise UsageError("rebalance needs either --drain BROKER or --fill BROKER")
    names = options.cluster or tuple(open_settings(options).clusters)
    if len(names) != 1:
        raise UsageError("rebalance needs one cluster: name it with --cluster")
    broker = drain if drain is not None else fill
    assert broker is not None, "one of them is given"
    return run_request(
        replace(
            plan_request(options, requested_by, detailed_exitcode),
            scope=Scope(clusters=names),
            instead=Rebalance(broker=broker, fills=fill is not None),
        ),
        options,
        deadline,
    )


@click.command(
    "prune",
    short_help="Plan to delete unused, undeclared topics.",
    epilog="Example: topicledger prune --cluster orders --topic '^tmp[.]' --idle-days 30",
)
@click.option(
    "--topic",
    "topics",
    cls=Renamed,
    former=["--topics"],
    multiple=True,
    callback=pattern,
    metavar="PATTERN",
    help="Topics whose name matches this pattern (RE2; anywhere unless anchored); may be repeated. Required without "
    "--declared.",
)
@click.option(
    "--idle-days",
    type=Duration("d", least=1, whole=True),
    required=True,
    help="Only topics without new records for this long (30 for days, 30d, 720h; whole days).",
)
@click.option(
    "--owner",
    multiple=True,
    callback=named,
    metavar="NAME",
    help="Only topics that [owners] gives to this owner, with --declared those that it declares; may be repeated.",
)
@click.option(
    "--declared",
    is_flag=True,
    help="Don't plan. Propose marking absent the declared topics that usage audits of this period found unused.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --declared: a new file (.yaml); default: stdout.",
)
@detailed_option
@deadline_option
@requested_by_option
@common
def prune(
    options: Options,
    topics: tuple[str, ...],
    idle_days: int,
    owner: tuple[str, ...],
    declared: bool,
    to: Path | None,
    detailed_exitcode: bool,
    deadline: float | None,
    requested_by: str | None,
) -> int:
    """Plan to delete unused topics that no manifest names. Changes nothing: `apply` the plan.

    With --declared, write a file for review in which unused declared topics are absent. That makes no plan.
    """
    if declared:
        if options.run_id is not None or requested_by is not None or deadline is not None or detailed_exitcode:
            raise UsageError(
                "prune --declared makes no plan: leave out --run-id, --requested-by, --deadline and --detailed-exitcode"
            )
        return propose(options, Proposing(patterns=topics, days=idle_days, owners=owner, to=to))
    if not topics:
        raise UsageError("Missing option '--topic'.")
    if to is not None:
        raise UsageError("prune --to is for --declared: a plan is a run, see `runs show`")
    if owner and (settings := open_settings(options)).owners == Owners():
        raise UsageError(
            f"{settings.path} has no [owners], and topics without a manifest have no other owner: leave out --owner; "
            "see docs/declare.md"
        )
    return run_request(
        replace(
            plan_request(options, requested_by, detailed_exitcode, Scope(owners=owner)),
            instead=Prune(patterns=topics, idle_days=idle_days),
        ),
        options,
        deadline,
    )
