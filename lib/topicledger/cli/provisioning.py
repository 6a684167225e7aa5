"""`plan`, `apply` and `provision`."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from topicledger import pipeline, policies
from topicledger.apply.dispatch import Context, Stop
from topicledger.apply.progress import Progress
from topicledger.apply.summary import Summary, render, results, summarise
from topicledger.cli.options import (
    Options,
    common,
    open_ledger,
    print_result,
    requested_by_option,
    started,
    with_resume_hint,
)
from topicledger.errors import UsageError
from topicledger.ledger import runs
from topicledger.ledger.run import Run
from topicledger.model import RunState

_wait_visible = click.option(
    "--wait-visible",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long verify waits until every applied partition has a leader.",
)

_deadline = click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after this long, once the batches under way are finished: exit 1, and --run-id resumes. Default: never.",
)
_wait = click.option(
    "--wait", is_flag=True, help="Wait for a cluster that another run is changing, instead of ending with exit 1."
)


@click.command("plan")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where changes are pending.")
@_deadline
@requested_by_option
@common
def plan(options: Options, detailed_exitcode: bool, deadline: float | None, requested_by: str | None) -> int:
    """Decide what to do, judge it, and have the clusters validate it. Changes nothing."""
    return _run(
        runs.Request(
            command="plan",
            run_id=options.run_id,
            clusters=options.cluster,
            requested_by=requested_by,
            detailed_exitcode=detailed_exitcode,
        ),
        options,
        deadline,
    )


@click.command("apply")
@_wait_visible
@_wait
@_deadline
@common
def apply(options: Options, wait_visible: float, wait: bool, deadline: float | None) -> int:
    """Carry out a saved plan: --run-id names it."""
    if options.run_id is None:
        raise UsageError("apply needs --run-id: the run that `plan` made; see `runs list`")
    return _run(
        runs.Request(
            command="apply", run_id=options.run_id, clusters=options.cluster, wait=wait, wait_visible=wait_visible
        ),
        options,
        deadline,
    )


@click.command("provision")
@_wait_visible
@_wait
@_deadline
@requested_by_option
@common
def provision(
    options: Options, wait_visible: float, wait: bool, deadline: float | None, requested_by: str | None
) -> int:
    """Plan and apply in one run."""
    return _run(
        runs.Request(
            command="provision",
            run_id=options.run_id,
            clusters=options.cluster,
            requested_by=requested_by,
            wait=wait,
            wait_visible=wait_visible,
        ),
        options,
        deadline,
    )


def _run(request: runs.Request, options: Options, deadline: float | None = None) -> int:
    with _stoppable(deadline) as stop:
        settings, ledger = open_ledger(options, request.command)
        # Before the run has a row: a policy that can't be made is an error of the settings.
        rules = policies.from_settings(settings)
        # Spark's own handler came with the session.
        with stop.at_interrupt(), started(request, options, settings, ledger) as run:
            summary = _provisioned(run, request, rules, options, stop)
    compared = all(
        name in settings.changes and settings.changes[name].configs != "off"
        for name in options.cluster or settings.clusters
    )
    return _show(summary, options, configs_compared=compared)


def _provisioned(
    run: Run, request: runs.Request, rules: Sequence[policies.Policy], options: Options, stop: Stop
) -> Summary:
    progress = options.metrics.progress = Progress()
    context = Context(
        progress=progress, stop=stop, policies=rules, wait=request.wait, wait_visible=request.wait_visible
    )
    planning_only = request.command == "plan"
    if run.state is RunState.FINISHED:
        return dataclasses.replace(
            summarise(run, results(run), run.counts, planning_only=False), exit_code=run.exit_code
        )
    with with_resume_hint(run):
        return pipeline.provision(run, context, planning_only=planning_only, detailed=request.detailed_exitcode)


@contextmanager
def _stoppable(deadline: float | None) -> Iterator[Stop]:
    """SIGTERM or the deadline end the batch under way, append what is known and leave the run to be resumed."""
    stop = Stop()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with stop.after(deadline):
            yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(summary: Summary, options: Options, *, configs_compared: bool) -> int:
    for counts in summary.clusters:
        for outcome, count in counts.outcomes.items():
            options.metrics.set("topicledger_topics", count, cluster=counts.cluster or "", outcome=outcome)
    for decision, count in summary.decisions.items():
        options.metrics.set("topicledger_topics_left_alone", count, decision=decision)
    print_result(
        summary.to_json(), lambda console: render(summary, console, configs_compared=configs_compared), options
    )
    return summary.exit_code
