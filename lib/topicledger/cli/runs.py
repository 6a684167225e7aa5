"""`runs list`, `show`, `revert`, `approve`, `verify` and `abandon`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import click
from rich.console import Console

from topicledger.apply.dispatch import Context, Stop
from topicledger.apply.display import display_only
from topicledger.apply.progress import Progress
from topicledger.cli import show
from topicledger.cli.options import (
    Options,
    ReadingCommand,
    Renamed,
    common_with,
    open_ledger,
    open_settings,
    print_result,
)
from topicledger.cli.plans import revert
from topicledger.config.settings import Settings
from topicledger.errors import ClusterError, ExitCode, UsageError
from topicledger.ledger import verifying
from topicledger.ledger.abandoned import abandon, take_over
from topicledger.ledger.session import for_few_rows
from topicledger.ledger.tables import Ledger
from topicledger.ledger.throttles import Leftover, clusters_left
from topicledger.ledger.verified import render
from topicledger.plan import approvals
from topicledger.plan.allowing import (
    GUARDS,
    approve_command,
    most_of,
    parse_allow,
    stopped_in_words,
    stops_load,
)
from topicledger.plan.planned_files import apply_command
from topicledger.resources.topics.apply.cancelling import cancel_of
from topicledger.resources.topics.apply.throttles import left_on, take_away_left
from topicledger.review.rendering import COMMENT_CHARACTERS, LEAST_CHARACTERS
from topicledger.text import document, printable
from topicledger.text import show as show_name


@click.group("runs")
def runs_group() -> None:
    """List, show, approve, verify, revert and abandon runs."""


@runs_group.command(
    "list", cls=ReadingCommand, short_help="List the runs, newest first.", epilog="Example: topicledger runs list"
)
@click.option("--limit", type=click.IntRange(min=1), default=50, help="Number of runs to list.")
@common_with(without=("run_id", "cluster", "result_file"))
def runs_list(options: Options, limit: int) -> int:
    """List the runs, newest first."""
    ledger = open_ledger(options, open_settings(options), "runs")
    return show.list_runs(ledger, limit, as_json=options.format == "json")


@runs_group.command(
    "show",
    cls=ReadingCommand,
    short_help="Show a plan as a diff, with its results.",
    epilog="Example: topicledger runs show nightly-7",
)
@click.option(
    "--max-chars",
    type=click.IntRange(min=LEAST_CHARACTERS),
    help=f"Print at most this many characters, at least {LEAST_CHARACTERS}; default for markdown: "
    f"{COMMENT_CHARACTERS}, the limit of a comment.",
)
@common_with(
    "text",
    "markdown",
    "json",
    without=("cluster", "result_file"),
    positional="RUN_ID",
)
def runs_show(options: Options, max_chars: int | None) -> int:
    """Show the plan of the run RUN_ID as a diff, with its results. JSON has the result of each phase."""
    if options.run_id is None:
        raise UsageError("runs show needs RUN_ID; see `runs list`")
    if max_chars is not None and options.format == "json":
        raise UsageError("--max-chars is for text and markdown: JSON would be cut within a value")
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "runs")
    if options.format == "json":
        return show.show_actions(ledger, options.run_id)
    return show.show_diff(ledger, settings, options.run_id, options.format, max_chars)


runs_group.add_command(revert)


@runs_group.command(
    "approve", short_help="Approve a run's current plan.", epilog="Example: topicledger runs approve nightly-7"
)
@click.option("--by", metavar="WHO", help="Name of the approver; default: the OS user.")
@click.option("--note", help="A reason, a ticket or a link.")
@click.option(
    "--allow",
    metavar="GUARD=NUMBER,...",
    multiple=True,
    help="Raise guards for this plan, such as deletes=2,losses=5; may be repeated. Numbers are per cluster, "
    "removed_rows per plan. "
    f"Guards: {', '.join(sorted(GUARDS))}.",
)
@click.option(
    "--plan",
    "digest",
    metavar="DIGEST",
    help="Approve only the plan with this digest, which `runs show` prints.",
)
@common_with(without=("cluster",), positional="RUN_ID")
def runs_approve(options: Options, by: str | None, note: str | None, allow: tuple[str, ...], digest: str | None) -> int:
    """Approve the current plan of the run RUN_ID. The requester of the run can't approve it."""
    if options.run_id is None:
        raise UsageError("runs approve needs RUN_ID; see `runs list`")
    allowed = parse_allow(",".join(allow)) if allow else None
    shown = None if digest is None else approvals.parse_digest(digest)
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "runs")
    with for_few_rows(ledger.spark):
        row = approvals.approve(ledger, settings, options.run_id, by=by, note=note, allow=allowed, digest=shown)
        with display_only(f"the approval of run {options.run_id}", instead="`runs approve` shows it again"):
            found = approvals.of_run(ledger, settings.guards, row)
            if not found.passing:
                found = replace(found, stopped=approvals.read_stopped(ledger, row))
            result = document(ExitCode.DONE, {**asdict(found), "allows": found.allows, "missing": found.missing})
            print_result(result, lambda console: render_approval(found, console), options)
    return ExitCode.DONE


def render_approval(found: approvals.Approvals, console: Console) -> None:
    """Print the approvers of a plan, whether they are enough, and what stays stopped by guards."""
    if not found.by:
        again = f"its plan has changed since it was approved; read it again: runs show {found.run_id}"
        console.print(printable(f"run {found.run_id} isn't approved: {again}"), markup=False, soft_wrap=True)
        return
    left = [each for each in found.stopped if each not in found.passing]
    once = ", once the removed rows are allowed" if stops_load(left) else ""
    enough = f"{apply_command(found.run_id, found.files)} applies it{once}"
    with_allowed = f", with what guards stopped: {found.allowed_in_words}" if found.passing else ""
    lines = [
        f"run {found.run_id} is approved by {', '.join(map(show_name, found.by))}{with_allowed}",
        f"not enough: {found}" if found.missing else enough,
    ]
    if left:
        allow = approve_command(found.run_id, most_of(found.stopped))
        lines.append(f"still stopped by guards: {stopped_in_words(left)}; if this is meant, before `apply`: {allow}")
    for line in lines:
        console.print(printable(line), markup=False, soft_wrap=True)


@runs_group.command(
    "verify",
    cls=ReadingCommand,
    short_help="Report runs that changed since they ended.",
    epilog="Example: topicledger runs verify",
)
@click.option(
    "--since-run",
    "since",
    cls=Renamed,
    former=["--from"],
    metavar="RUN",
    help="Only runs that ended with or after this one.",
)
@click.option(
    "--expect", multiple=True, metavar="DIGEST", help="A digest that a run must have, kept elsewhere; may be repeated."
)
@click.option(
    "--other-key",
    "other_keys",
    metavar="KEY_ID",
    multiple=True,
    help="Id of an earlier or later key: its runs are listed, to be verified with that key. May be repeated.",
)
@common_with(without=("run_id", "cluster"))
def runs_verify(options: Options, since: str | None, expect: tuple[str, ...], other_keys: tuple[str, ...]) -> int:
    """Compute the digests of all runs again, and report changes since they ended: exit code 4.

    With a key, the exit code is 3 if runs with rows have no digest.
    """
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "runs")
    verified = verifying.verify(ledger, settings, since=since, expected=expect, other_keys=other_keys)
    print_result(verified.to_json(), lambda console: render(verified, console), options)
    return verified.exit_code


@runs_group.command("abandon", short_help="Give up an open run.", epilog="Example: topicledger runs abandon nightly-7")
@click.option("--cancel", is_flag=True, help="First cancel the run's moves of replicas that are under way.")
@common_with(without=("cluster", "format", "result_file"), positional="RUN_ID")
def runs_abandon(options: Options, cancel: bool) -> int:
    """Give up the open run RUN_ID.

    Removes its throttles, except those of moves under way: the next run on the cluster removes these.
    """
    if options.run_id is None:
        raise UsageError("runs abandon needs RUN_ID; see `runs list`")
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "runs")
    if cancel:
        _cancel(ledger, settings, options.run_id)
    abandon(ledger, settings, options.run_id)
    with display_only("the result", instead="`runs list` shows the run's state"):
        click.echo(abandoned(options.run_id))
    _take_away_throttles(ledger, settings, options.run_id)
    with display_only("what stays set", instead="the next run on the cluster removes throttles"):
        for name in _throttled(ledger, settings, options.run_id):
            click.echo(
                f"throttles stay set on cluster {name}; the next run there removes them once nothing moves any more"
            )
    return ExitCode.DONE


def abandoned(run_id: str) -> str:
    """Return the line that reports that a run was abandoned."""
    return f"run {printable(run_id)} is abandoned"


def _take_away_throttles(ledger: Ledger, settings: Settings, run_id: str) -> None:
    """Remove the run's throttles. This is work, not display: if it fails, the command can be repeated."""
    take_away_left(ledger, settings, run_id, _throttled(ledger, settings, run_id), Stop())


def _throttled(ledger: Ledger, settings: Settings, run_id: str) -> Mapping[str, tuple[str, Leftover]]:
    """Return cluster -> its id and the throttles that the run may have left set."""
    left = {cluster_id: each for cluster_id, each in clusters_left(ledger).items() if run_id in each.run_ids}
    return left_on(ledger, settings, settings.clusters, left)


def _cancel(ledger: Ledger, settings: Settings, run_id: str) -> None:
    """Cancel a run's moves. Raises ClusterError if the outcome of any is unknown; the run then stays open."""
    with take_over(ledger, settings, run_id) as run:
        problems = cancel_of(run, Context(progress=Progress(), stop=Stop()))
    if problems:
        raise ClusterError(f"run {run_id} is not abandoned: {'; '.join(problems.values())}")
