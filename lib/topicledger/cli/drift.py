"""`drift`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from topicledger.apply.display import display_only
from topicledger.apply.progress import Progress
from topicledger.cli.announcing import announce_end, errors_announced
from topicledger.cli.options import (
    Options,
    common,
    interruptible,
    open_ledger,
    open_settings,
    print_result,
    requested_by_option,
    started,
    with_resume_hint,
)
from topicledger.cli.scope import check_owners, scope_options
from topicledger.config.severities import Severity
from topicledger.drift import summary as drift_summary
from topicledger.drift.audit import audit
from topicledger.errors import UsageError
from topicledger.ledger import runs
from topicledger.model.scope import Scope
from topicledger.notify.announcement import of_audit


@click.command(
    "drift",
    short_help="Record drift of live clusters (also: audit).",
    epilog="Example: topicledger drift --cluster orders",
)
@click.option(
    "--fail-on",
    type=click.Choice([each.value for each in Severity]),
    help="Exit 3 if there is drift of at least this severity.",
)
@click.option("--detailed-exitcode", is_flag=True, help="The same as --fail-on info.")
@click.option(
    "--usage/--no-usage",
    default=None,
    help="Also read sizes, offsets, groups and producers of the topics into the table `usage`; default: audit.usage of "
    "the settings.",
)
@scope_options
@requested_by_option
@common
def drift(
    options: Options,
    limits: Scope,
    fail_on: str | None,
    detailed_exitcode: bool,
    usage: bool | None,
    requested_by: str | None,
) -> int:
    """Compare the live clusters with the manifests; record differences in the table `drift`. Changes no cluster."""
    if fail_on is not None and detailed_exitcode:
        raise UsageError("--fail-on and --detailed-exitcode both say when to exit 3: give one of them")
    worst = Severity.INFO if detailed_exitcode else None if fail_on is None else Severity(fail_on)
    request = runs.Request(
        command=runs.AUDIT_COMMAND,
        run_id=options.run_id,
        scope=replace(limits, clusters=options.cluster),
        requested_by=requested_by,
        usage=usage,
    )
    with interruptible():
        settings = open_settings(options)
        ledger = open_ledger(options, settings, "drift")
        check_owners(ledger, settings, limits.owners)
        with started(request, options, settings, ledger) as run:
            progress = options.metrics.count(Progress())
            with errors_announced(run, "audit"), with_resume_hint(run):
                summary = audit(run, progress, fail_on=worst)
            announce_end(run, partial(of_audit, summary))
    for each in summary.clusters:
        for kind, count in each.kinds.items():
            options.metrics.set("topicledger_drift", count, cluster=each.cluster, kind=kind)
    again = f"`drift --run-id {summary.run_id}` shows it"
    with display_only(f"the result of audit {summary.run_id}", instead=again):
        print_result(summary.to_json(), lambda console: drift_summary.render(summary, console), options)
    return summary.exit_code
