"""`plan`, `apply` and `provision`."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Literal

import click
from rich.console import Console

from topicledger import pipeline, policies
from topicledger.apply.dispatch import Context, Stop
from topicledger.apply.display import display_only
from topicledger.apply.progress import Progress
from topicledger.apply.rendering import is_waiting, render, render_waiting
from topicledger.apply.summary import Summary, results, summarise
from topicledger.cli import loading
from topicledger.cli.announcing import announce_end, errors_announced
from topicledger.cli.durations import Duration
from topicledger.cli.options import (
    AS_PLANNED,
    Options,
    common,
    common_with,
    open_ledger,
    open_settings,
    print_result,
    requested_by_option,
    started,
    with_resume_hint,
)
from topicledger.cli.scope import check_owners, scope_options
from topicledger.config.settings import ChangeSettings, Settings
from topicledger.errors import UsageError
from topicledger.files.load import Replace
from topicledger.files.read import read, remarks
from topicledger.files.reading import NO_VARIABLES
from topicledger.ledger import runs
from topicledger.ledger.run import Run
from topicledger.model import RunState
from topicledger.model.scope import EVERYTHING, Scope
from topicledger.notify.announcement import of_run
from topicledger.resources import building, registry
from topicledger.resources.topics.plan.wanted import compares_configs
from topicledger.text import nearest, show, utc_time

_wait_visible = click.option(
    "--wait-visible",
    type=Duration("s", least=0),
    default=0.0,
    help="How long verify waits until every applied partition has a leader (30 for seconds, 30s, 5m).",
)

deadline_option = click.option(
    "--deadline",
    type=Duration("s", least=0.001),
    help="Stop after this time (300 for seconds, 5m) and batches under way; moves continue: exit 1. Default: never.",
)

_cancel = click.option(
    "--cancel",
    is_flag=True,
    help="If the run is stopped by SIGTERM, Ctrl-C or the deadline, cancel its moves of replicas that are under way.",
)


def _kinds(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Parse the kinds that all `--only` name."""
    known = [kind.option for kind in registry.in_order() if kind.option is not None]
    words = [word.strip() for each in given for word in each.split(",")]
    for word in (each for each in words if each not in known):
        raise click.BadParameter(f"there is no kind of actions `{show(word)}`; {nearest(word, known)}")
    return tuple(dict.fromkeys(words))


_only = click.option(
    "--only",
    metavar="KINDS",
    multiple=True,
    callback=_kinds,
    help="Plan only actions of these kinds, not with FILES; repeated, or with commas between them: "
    f"{', '.join(dict.fromkeys(kind.option for kind in registry.in_order() if kind.option))}.",
)


def _time(_: click.Context, __: click.Parameter, given: str | None) -> datetime | None:
    """Parse an ISO 8601 time, as UTC if it has no offset."""
    if given is None:
        return None
    try:
        return utc_time(given)
    except ValueError:
        raise click.BadParameter(
            f"{show(given)} is not a time: write it as 2026-11-20T10:00:00Z, or with an offset (+01:00)"
        ) from None


detailed_option = click.option("--detailed-exitcode", is_flag=True, help="Exit 3 if changes are pending.")
_wait = click.option(
    "--wait", is_flag=True, help="Wait for a cluster that another run is changing, instead of ending with exit 1."
)


@click.command(
    "plan",
    short_help="Plan a run; clusters only validate it.",
    epilog="Example: topicledger plan --cluster orders --run-id nightly-7",
)
@click.argument("files", nargs=-1)
@_only
@click.option(
    "--manifest-version", type=click.IntRange(min=0), metavar="N", help="Plan from this version of `manifests`."
)
@click.option(
    "--manifest-as-of", callback=_time, metavar="TIME", help="Plan from `manifests` as they were at this time (UTC)."
)
@click.option("--strict", is_flag=True, help="Unknown names of configs in FILES are errors, not warnings.")
@loading.replace_options
@loading.var_option
@click.option("--all", "everything", is_flag=True, help="With FILES: plan all changes, not only what FILES declare.")
@scope_options
@detailed_option
@deadline_option
@requested_by_option
@common
def plan(
    options: Options,
    files: tuple[str, ...],
    only: tuple[str, ...],
    limits: Scope,
    strict: bool,
    replace: bool,
    replace_owner: tuple[str, ...],
    variables: Mapping[str, str],
    everything: bool,
    manifest_version: int | None,
    manifest_as_of: datetime | None,
    detailed_exitcode: bool,
    deadline: float | None,
    requested_by: str | None,
) -> int:
    """Plan a run, evaluate its policies and guards, and have the clusters validate it. Changes nothing.

    With FILES (YAML, JSON, CSV, folders, or - for YAML on stdin), plan what they declare, from `manifests` as they
    would be with these loaded; `apply` with the same FILES loads them. With --replace, rows that are
    in no file are removed as well.
    """
    if manifest_version is not None and manifest_as_of is not None:
        raise UsageError("--manifest-version and --manifest-as-of both say which manifests: give one of them")
    for option, given in {"--strict": strict, "--var": variables}.items():
        if given and not files:
            raise UsageError(f"{option} is about FILES: give some, or leave it out")
    replacing = loading.replaced(replace, replace_owner)
    if replacing is not None and not files:
        raise UsageError("--replace and --replace-owner are about FILES: give some, or leave them out")
    if only and files:
        raise UsageError("`apply` loads all rows of FILES, also those whose actions --only leaves out: leave it out")
    if everything and not files:
        raise UsageError("--all is about FILES: without them, everything is planned anyway")
    limits = dataclasses.replace(limits, kinds=only, files=bool(files) and not everything)
    if files and (manifest_version is not None or manifest_as_of is not None):
        raise UsageError("FILES are planned with the latest manifests: leave out --manifest-version and -as-of")
    return run_request(
        dataclasses.replace(
            plan_request(options, requested_by, detailed_exitcode, limits),
            manifests=manifest_as_of if manifest_version is None else manifest_version,
        ),
        options,
        deadline,
        loading.paths_of(files),
        strict=strict,
        variables=variables,
        replacing=replacing,
    )


@click.command("apply", short_help="Apply a saved plan.", epilog="Example: topicledger apply --run-id nightly-7")
@click.argument("files", nargs=-1)
@_wait_visible
@_wait
@deadline_option
@_cancel
@common_with(run_id="The saved plan to apply, or the run to resume; required.", cluster=AS_PLANNED)
def apply(
    options: Options,
    files: tuple[str, ...],
    wait_visible: float,
    wait: bool,
    deadline: float | None,
    cancel: bool,
) -> int:
    """Apply a saved plan: --run-id names it.

    If it was planned from FILES, give them, too: those that are unchanged since the plan are loaded first.
    """
    if options.run_id is None:
        raise UsageError("apply needs --run-id: the run that `plan` made; see `runs list`")
    return run_request(
        runs.Request(
            command="apply",
            run_id=options.run_id,
            scope=Scope(clusters=options.cluster),
            wait=wait,
            wait_visible=wait_visible,
        ),
        options,
        deadline,
        loading.paths_of(files),
        cancel=cancel,
    )


@click.command(
    "provision", short_help="Plan and apply in one run.", epilog="Example: topicledger provision --cluster orders"
)
@_only
@scope_options
@_wait_visible
@_wait
@deadline_option
@_cancel
@requested_by_option
@common
def provision(
    options: Options,
    only: tuple[str, ...],
    limits: Scope,
    wait_visible: float,
    wait: bool,
    deadline: float | None,
    cancel: bool,
    requested_by: str | None,
) -> int:
    """Plan and apply in one run."""
    return run_request(
        runs.Request(
            command="provision",
            run_id=options.run_id,
            scope=dataclasses.replace(limits, clusters=options.cluster, kinds=only),
            requested_by=requested_by,
            wait=wait,
            wait_visible=wait_visible,
        ),
        options,
        deadline,
        cancel=cancel,
    )


def plan_request(
    options: Options, requested_by: str | None, detailed_exitcode: bool, limits: Scope = EVERYTHING
) -> runs.Request:
    """Return the common part of the requests of commands that plan."""
    return runs.Request(
        command="plan",
        run_id=options.run_id,
        scope=dataclasses.replace(limits, clusters=options.cluster),
        requested_by=requested_by,
        detailed_exitcode=detailed_exitcode,
    )


def run_request(
    request: runs.Request,
    options: Options,
    deadline: float | None = None,
    files: Sequence[Path | Literal["-"]] = (),
    *,
    strict: bool = False,
    variables: Mapping[str, str] = NO_VARIABLES,
    replacing: Replace | None = None,
    cancel: bool = False,
) -> int:
    """Start or resume a run, carry out its command, and print the result; return the exit code.

    `files`: manifest files to plan from, as if they were loaded; `apply` loads them. `strict`: their warnings are
    errors. `variables`: values for variables in them. `replacing`: the rows that loading them removes. `cancel`: cancel
    moves under way when the run is stopped.
    """
    with _stoppable(deadline, cancels=cancel) as stop:
        settings = open_settings(options)
        _require_asked_for(settings, request)
        building.check(settings)
        plans_files = bool(files) and request.command == "plan"
        parsed = None
        if plans_files:
            names, owners = request.scope.clusters, request.scope.owners
            parsed = read(settings, files, sys.stdin, clusters=names, strict=strict, variables=variables, owners=owners)
        for line in () if parsed is None else remarks(parsed):
            click.echo(line, err=True)
        ledger = open_ledger(options, settings, request.command, new=parsed is not None)
        if parsed is not None:
            planned = loading.files_of(ledger, settings, parsed, list(map(str, files)), replacing, request)
            request = dataclasses.replace(request, manifests=planned)
        unloaded = [each.rows for each in request.unloaded.values()]
        check_owners(ledger, settings, request.scope.owners, unloaded, required=plans_files)
        # This comes before the run has a row: a policy that can't be created is an error in the settings.
        rules = building.from_settings(settings, reverts=not request.by_manifests)
        # Spark's own handler came with the session.
        with stop.at_interrupt(), started(request, options, settings, ledger) as run:
            if request.command == "apply":
                loading.require_files_of(run, files)
            summary = _provisioned(run, request, rules, options, stop, files)

    def rendered(found: Summary, console: Console) -> None:
        if request.command == "apply" and is_waiting(found):
            render_waiting(found, console)
        else:
            render(found, console, configs_compared=not request.by_manifests or compares_configs(run))

    return _show(summary, options, rendered)


def _require_asked_for(settings: Settings, request: runs.Request) -> None:
    """Refuse an `--only` with a change that is off in the settings: the run would silently skip it."""
    asked = [
        settings.changes.get(cluster.name, ChangeSettings()) for cluster in settings.select(request.scope.clusters)
    ]
    for kind in registry.in_order():
        switch = kind.safeguards.switch
        if switch and kind.option in request.scope.kinds and all(getattr(each, switch) == "off" for each in asked):
            page = "replicas" if switch == "replicas" else "change"
            raise UsageError(f"{settings.path}: --only {kind.option}: changes.{switch} is off; see docs/{page}.md")


def _provisioned(
    run: Run,
    request: runs.Request,
    rules: Sequence[policies.Policy],
    options: Options,
    stop: Stop,
    files: Sequence[Path | Literal["-"]],
) -> Summary:
    context = Context(
        progress=options.metrics.count(Progress()),
        stop=stop,
        policies=rules,
        wait=request.wait,
        wait_visible=request.wait_visible,
    )
    planning_only, applying_only = request.command == "plan", request.command == "apply"
    if run.state is RunState.FINISHED:
        # The files are loaded last: a result that can't be read must not make a load look failed.
        found = summarise(run, results(run), run.counts, planning_only=False)
        click.echo(f"run {run.run_id} has already finished: nothing is sent, and this is its result", err=True)
        if applying_only:
            loading.load_files_of_finished(run, files)
        return dataclasses.replace(found, exit_code=run.exit_code)
    with errors_announced(run, "run"), with_resume_hint(run):
        summary = pipeline.provision(
            run,
            context,
            planning_only=planning_only,
            applying_only=applying_only,
            detailed=request.detailed_exitcode,
            load=partial(loading.load_planned_files, run, files) if applying_only else lambda: None,
        )
    announce_end(run, partial(of_run, summary))
    return summary


@contextmanager
def _stoppable(deadline: float | None, *, cancels: bool) -> Iterator[Stop]:
    """Context in which SIGTERM or the deadline stop the run after the batch under way, so that it can be resumed."""
    stop = Stop(cancels=cancels)
    before = signal.getsignal(signal.SIGTERM)

    def terminate(number: int, frame: FrameType | None) -> None:
        stop.set()
        if callable(before):
            # A server that runs this command ends, too.
            before(number, frame)

    signal.signal(signal.SIGTERM, terminate)
    try:
        with stop.after(deadline):
            yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(summary: Summary, options: Options, rendered: Callable[[Summary, Console], None]) -> int:
    for counts in summary.clusters:
        for outcome, count in counts.outcomes.items():
            options.metrics.set("topicledger_topics", count, cluster=counts.cluster or "", outcome=outcome)
    for decision, count in summary.decisions.items():
        options.metrics.set("topicledger_topics_left_alone", count, decision=decision)
    again = f"`runs show {summary.run_id}` shows it"
    with display_only(f"the result of run {summary.run_id}", instead=again):
        print_result(summary.to_json(), partial(rendered, summary), options)
    return summary.exit_code
