"""The commands: each is its name, its help, its options, its call. jobs/*.py and the console script share them."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console

from topicledger import (
    __version__,
    auditing,
    clusters,
    drift_summary,
    explain,
    exporting,
    logs,
    maintaining,
    phases,
    report,
    runs,
    show,
)
from topicledger.dispatch import Context, Stop
from topicledger.errors import ExitCode, TopicLedgerError, UsageError
from topicledger.hints import printable
from topicledger.loading import Foreign, Replace, leftovers, load, removals
from topicledger.manifest_files.foreign import FOREIGN_FORMATS
from topicledger.metrics import Metrics
from topicledger.model import RunState
from topicledger.progress import Progress
from topicledger.retries import first_sentence
from topicledger.schemas import AUDIT, MANIFESTS, PLANS, RUNS
from topicledger.session import for_few_rows, get_session
from topicledger.settings import Settings, load_settings
from topicledger.summary import Summary, render, summarise
from topicledger.tables import Ledger

log = logging.getLogger(__name__)

Command = Callable[..., Any]

FEW_BYTES = 1_000_000
"""Up to this size of `manifests`, some 50,000 rows, a run's queries are interpreted instead of compiled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What every command takes."""

    config: Path
    run_id: str | None
    cluster: tuple[str, ...]
    format: str
    result_file: Path | None
    log_format: Literal["text", "json"]
    verbose: bool
    metrics_file: Path | None
    metrics: Metrics = dataclasses.field(default_factory=Metrics, init=False)
    """What the command has to tell in `metrics_file`."""


def _common(command: Command) -> Command:
    """Adds the options that every command takes, as one `options`; errors become a message and an exit code."""
    fields = [field.name for field in dataclasses.fields(Options) if field.init]

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        options = Options(**{name: arguments.pop(name) for name in fields})
        logs.set_up(options.log_format, verbose=options.verbose, run_id=options.run_id)
        code = ExitCode.ERROR
        try:
            code = ExitCode(_carried_out(command, options, arguments))
        finally:
            if options.metrics_file is not None:
                _write_metrics(options.metrics_file, options.metrics, code)
        sys.exit(int(code))

    decorators = [
        click.option("--config", type=click.Path(path_type=Path), required=True, help="Run settings (TOML)."),
        click.option("--run-id", help="Take this run up again, or name a new one; default: a new sortable id."),
        click.option("--cluster", multiple=True, help="Only this cluster of the settings; may be repeated."),
        click.option("--format", type=click.Choice(["table", "json"]), default="table", help="On stdout."),
        click.option("--result-file", type=click.Path(path_type=Path), help="Write the result (JSON) here as well."),
        click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="On stderr."),
        click.option("--metrics-file", type=click.Path(path_type=Path), help="Write metrics (Prometheus) here."),
        click.option("--verbose", is_flag=True, help="Log what is done, and Spark's own log, on stderr."),
        click.version_option(__version__),
    ]
    for decorate in reversed(decorators):
        call = decorate(call)
    return call


def _carried_out(command: Command, options: Options, arguments: Mapping[str, Any]) -> int:
    try:
        return int(command(options=options, **arguments))
    except TopicLedgerError as error:
        return _failed(str(error), error.exit_code, options, error.run_id, error.details)
    except KeyboardInterrupt:
        return _failed("interrupted; start the run again with its id", ExitCode.ERROR, options)
    except (PySparkException, Py4JError) as error:
        return _failed(f"Spark failed: {first_sentence(error)} (more with --verbose)", ExitCode.ERROR, options)


def _write_metrics(path: Path, metrics: Metrics, code: ExitCode) -> None:
    names = []
    context: click.Context | None = click.get_current_context()
    while context is not None and context.command is not main:
        names.append(str(context.command.name))
        context = context.parent
    try:
        metrics.write(path, " ".join(reversed(names)), code)
    except OSError as error:
        click.echo(f"error: can't write the metrics to {path}: {error.strerror}", err=True)


def _failed(
    message: str,
    code: ExitCode,
    options: Options,
    run_id: str | None = None,
    details: Mapping[str, object] | None = None,
) -> ExitCode:
    if options.verbose:
        log.exception("stopped by")
    click.echo(f"error: {printable(message)}", err=True)
    if options.result_file is not None:
        document = {"format_version": 1, "run_id": run_id, "exit_code": int(code), "error": message, **(details or {})}
        _write(options.result_file, json.dumps(document))
    return code


def _write(path: Path, text: str) -> None:
    try:
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        click.echo(f"error: can't write the result to {path}: {error.strerror}", err=True)


def _show(summary: Summary, options: Options) -> int:
    for counts in summary.clusters:
        for outcome, count in counts.outcomes.items():
            options.metrics.set("topicledger_topics", count, cluster=counts.cluster or "", outcome=outcome)
    for decision, count in summary.decisions.items():
        options.metrics.set("topicledger_topics_left_alone", count, decision=decision)
    _tell(summary.to_json(), lambda console: render(summary, console), options)
    return summary.exit_code


def _tell(document: str, render: Callable[[Console], None], options: Options) -> None:
    """A result, on stdout as asked for, and in the result file."""
    if options.result_file is not None:
        _write(options.result_file, document)
    if options.format == "json":
        click.echo(document)
    else:
        render(Console(width=None if sys.stdout.isatty() else 160))


def _open(options: Options, name: str, *, new: bool = False) -> tuple[Settings, Ledger]:
    for option, path in (("--result-file", options.result_file), ("--metrics-file", options.metrics_file)):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"there is no folder for {option} {path}")
    settings = load_settings(options.config)
    settings.select(options.cluster)
    ledger = Ledger(get_session(name, verbose=options.verbose), settings.tables.root)
    if not settings.tables.single_writer:
        ledger.require_atomic_commits(refuse=name in ("apply", "provision"))
    if not new:
        ledger.require_root()
    return settings, ledger


@contextmanager
def _started(request: runs.Request, options: Options, settings: Settings, ledger: Ledger) -> Iterator[runs.Run]:
    """A run begun or taken up. When its commits are settled, the session's queries suit the number of manifests."""
    with for_few_rows(ledger.spark) as for_many, ThreadPoolExecutor(1) as beside:
        # Asked first: a table that is being made can't be looked at.
        size = beside.submit(ledger.size, MANIFESTS) if ledger.exists(MANIFESTS) else None
        run = runs.start(ledger, settings, request)
        if size is not None:
            run.commits.add(lambda: for_many() if size.result().bytes > FEW_BYTES else None)
        logs.set_up(options.log_format, verbose=options.verbose, run_id=run.run_id)
        yield run


@contextmanager
def _stoppable(deadline: float | None) -> Iterator[Stop]:
    """SIGTERM or the deadline end the batch under way, append what is known and leave the run to be taken up again."""
    stop = Stop()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with stop.after(deadline):
            yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _taken_up_again(run: runs.Run) -> Iterator[None]:
    """Whatever ends the run within it, the user hears how to go on."""
    try:
        yield
    except BaseException as error:
        click.echo(f"run {run.run_id} is not finished; --run-id {run.run_id} takes it up again", err=True)
        if isinstance(error, TopicLedgerError):
            error.run_id = run.run_id
        raise


def _run(request: runs.Request, options: Options, deadline: float | None = None) -> int:
    with _stoppable(deadline) as stop:
        settings, ledger = _open(options, request.command)
        # Spark's own handler came with the session.
        with stop.at_interrupt(), _started(request, options, settings, ledger) as run:
            summary = _provisioned(run, request, options, stop)
    return _show(summary, options)


def _provisioned(run: runs.Run, request: runs.Request, options: Options, stop: Stop) -> Summary:
    progress = options.metrics.progress = Progress()
    context = Context(progress=progress, stop=stop, wait=request.wait, wait_visible=request.wait_visible)
    planning_only = request.command == "plan"
    if run.state is RunState.FINISHED:
        return dataclasses.replace(summarise(run, planning_only=False), exit_code=run.exit_code or 0)
    with _taken_up_again(run):
        return phases.carry_out(run, context, planning_only=planning_only, detailed=request.detailed_exitcode)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM is as Ctrl-C: what changes no cluster may end wherever it is, and be taken up again."""

    asked = False

    def interrupt(*_: object) -> NoReturn:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except (PySparkException, Py4JError):
        # What was interrupted may have told it as a failure of its own.
        if asked:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


_requested_by = click.option("--requested-by", help="Who asked for the run; default: the OS user.")
_wait_visible = click.option(
    "--wait-visible",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Verify waits this long until every applied partition has a leader.",
)

_deadline = click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop after so long, finishing the batches under way: exit 1, and --run-id goes on from there. Default: none.",
)
_wait = click.option(
    "--wait", is_flag=True, help="Wait for a cluster that another run is changing, instead of ending with exit 1."
)


@click.command("plan")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where changes are pending.")
@_deadline
@_requested_by
@_common
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
@_common
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
@_requested_by
@_common
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


@click.command("audit")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where there is drift.")
@_requested_by
@_common
def audit(options: Options, detailed_exitcode: bool, requested_by: str | None) -> int:
    """Tell how the live clusters differ from the manifests, and keep it. Changes no cluster."""
    request = runs.Request(
        command=runs.AUDIT_COMMAND, run_id=options.run_id, clusters=options.cluster, requested_by=requested_by
    )
    with _interruptible():
        settings, ledger = _open(options, request.command)
        with _started(request, options, settings, ledger) as run, _taken_up_again(run):
            progress = options.metrics.progress = Progress()
            summary = auditing.audit(run, progress, detailed=detailed_exitcode)
    for each in summary.clusters:
        for kind, count in each.kinds.items():
            options.metrics.set("topicledger_drift", count, cluster=each.cluster, kind=kind)
    _tell(summary.to_json(), lambda console: drift_summary.render(summary, console), options)
    return summary.exit_code


@click.command("load_manifests")
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--replace", is_flag=True, help="Remove rows that no file has from the clusters that the files name, of any owner."
)
@click.option(
    "--replace-owner", multiple=True, metavar="OWNER", help="As --replace, rows of this owner only; may be repeated."
)
@click.option("--stdin-format", type=click.Choice(["yaml", "json", "csv"]), help="What comes on stdin (FILE is -).")
@click.option("--from", "foreign", type=click.Choice(list(FOREIGN_FORMATS)), help="FILES are another tool's.")
@_requested_by
@_common
def load_manifests(
    options: Options,
    files: tuple[str, ...],
    replace: bool,
    replace_owner: tuple[str, ...],
    stdin_format: str | None,
    foreign: str | None,
    requested_by: str | None,
) -> int:
    """Load YAML, JSON or CSV FILES (or folders, or -) into the manifests table; a row in `runs` keeps who did.

    More removed rows than guards.max_removed_rows (default 0) are listed, and nothing is loaded: exit 5.
    With --from, what can't be carried over is listed on stderr; --cluster says which cluster the topics are on, where
    the files don't or say otherwise.
    """
    if foreign is not None and len(options.cluster) > 1:
        raise UsageError("load_manifests --from takes one --cluster, that of all its topics")
    settings, ledger = _open(options, "load_manifests", new=True)
    paths: list[Path | Literal["-"]] = ["-" if name == "-" else Path(name) for name in files]
    loaded = load(
        ledger,
        settings,
        paths,
        sys.stdin,
        stdin_format=cast(Any, stdin_format),
        replace=Replace(owners=replace_owner) if replace or replace_owner else None,
        foreign=None if foreign is None else Foreign(form=foreign, cluster=next(iter(options.cluster), None)),
        run_id=options.run_id,
        requested_by=requested_by,
    )
    for change in ("added", "changed", "unchanged", "removed"):
        options.metrics.set("topicledger_manifests", getattr(loaded, change), change=change)
    for line in leftovers(loaded):
        click.echo(line, err=True)
    document = json.dumps({"format_version": 1, "exit_code": 0, **dataclasses.asdict(loaded)})
    if options.result_file is not None:
        _write(options.result_file, document)
    if options.format == "json":
        click.echo(document)
    else:
        removed = f", {loaded.removed} removed" if replace or replace_owner else ""
        click.echo(f"{loaded.added} added, {loaded.changed} changed, {loaded.unchanged} unchanged{removed}")
        for line in removals(loaded):
            click.echo(line)
    return ExitCode.DONE


@click.command("export")
@click.option("--pattern", metavar="REGEX", help="Only topics whose names have a match (RE2).")
@click.option("--exclude", metavar="REGEX", help="No topics whose names have a match (RE2).")
@click.option(
    "--to", type=click.Path(path_type=Path), metavar="PATH", help="A file (.yaml, .json), or a folder for many."
)
@click.option("--into-table", is_flag=True, help="Merge into the manifests table instead.")
@click.option("--with-assignments", is_flag=True, help="Which brokers have each partition, instead of counts.")
@click.option("--owner", help="The owner of all of them; default: none.")
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
@_common
def export(options: Options, to: Path | None, into_table: bool, **given: Any) -> int:
    """Write the topics of live clusters as manifests: --cluster names them. Changes no cluster."""
    if not options.cluster:
        raise UsageError("export needs --cluster, once for each cluster to export")
    if (to is None) != into_table:
        raise UsageError("export needs one of --to and --into-table")
    with _interruptible():
        settings, ledger = _open(options, "export", new=True)
        clusters = settings.select(options.cluster)
        exported = exporting.export(ledger, settings, clusters, exporting.Request(to=to, **given))
    _tell(exported.to_json(), lambda console: exporting.render(exported, console), options)
    return exported.exit_code


@click.group("runs")
def runs_group() -> None:
    """Runs so far."""


@runs_group.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=50, help="The newest so many.")
@_common
def runs_list(options: Options, limit: int) -> int:
    """The runs, newest first."""
    _, ledger = _open(options, "runs")
    return show.list_runs(ledger, limit, as_json=options.format == "json")


@runs_group.command("show")
@_common
def runs_show(options: Options) -> int:
    """Every action of a run, with what validateOnly resolved: --run-id names it."""
    if options.run_id is None:
        raise UsageError("runs show needs --run-id; see `runs list`")
    _, ledger = _open(options, "runs")
    return show.show_run(ledger, options.run_id, as_json=options.format == "json")


@runs_group.command("abandon")
@_common
def runs_abandon(options: Options) -> int:
    """Give up an open run: --run-id names it."""
    if options.run_id is None:
        raise UsageError("runs abandon needs --run-id; see `runs list`")
    _, ledger = _open(options, "runs")
    runs.abandon(ledger, options.run_id)
    click.echo(f"run {options.run_id} is abandoned")
    return ExitCode.DONE


@click.group("clusters")
def clusters_group() -> None:
    """Which Kafka cluster each name of the settings is."""


@clusters_group.command("list")
@_common
def clusters_list(options: Options) -> int:
    """The recorded id of each name, since when and by whom, and what the settings say. Asks no cluster."""
    settings, ledger = _open(options, "clusters")
    names = clusters.list_names(ledger, settings, options.cluster)
    _tell(names.to_json(), lambda console: clusters.render_names(names, console), options)
    return ExitCode.DONE


@clusters_group.command("accept")
@click.argument("name")
@_requested_by
@_common
def clusters_accept(options: Options, name: str, requested_by: str | None) -> int:
    """Make the cluster that answers now the one that NAME stands for, whatever it was before."""
    with _interruptible():
        settings, ledger = _open(options, "clusters")
        accepted = clusters.accept(ledger, settings, name, run_id=options.run_id, requested_by=requested_by)
    _tell(accepted.to_json(), lambda console: clusters.render_acceptance(accepted, console), options)
    return ExitCode.DONE


@click.command("report")
@click.option("--since", metavar="TIME", help="All that ended from then on (ISO 8601, UTC), instead of one run.")
@click.option("--until", metavar="TIME", help="With --since: and before then. Default: now.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The HTML file to write.")
@_common
def report_command(options: Options, since: str | None, until: str | None, out: Path) -> int:
    """Write one HTML file that tells what a run or an audit (--run-id), or a span of time (--since), came to."""
    if (options.run_id is None) == (since is None):
        raise UsageError("report needs either --run-id, see `runs list`, or --since: what it is about")
    if until is not None and since is None:
        raise UsageError("--until needs --since: a report about a run takes all of it")
    report.require_writable(out)
    now = datetime.now(UTC)
    start = None if since is None else report.moment(since, "--since")
    end = now if until is None else report.moment(until, "--until")
    asked = None if start is None else report.span(start, end, options.cluster)
    _, ledger = _open(options, "report")
    ledger.ensure(RUNS, PLANS, AUDIT)
    if asked is None:
        asked = report.of_run(ledger, str(options.run_id), options.cluster)
    told = report.gather(ledger, asked, now)
    report.write(out, report.render(told))
    document = json.dumps(
        {
            "format_version": 1,
            "exit_code": 0,
            "run_id": options.run_id,
            "kind": told.kind.value,
            "out": str(out),
            "outcomes": told.outcomes(),
            "drift": sum(each.findings for each in told.drift.tallies) if told.drift else None,
        }
    )
    if options.result_file is not None:
        _write(options.result_file, document)
    click.echo(document if options.format == "json" else f"wrote {printable(str(out))}")
    return ExitCode.DONE


def _days(option: str, rows: str) -> Callable[[Command], Command]:
    text = f"Delete {rows} of days (UTC) before the last so many, of runs that are over. Default: none."
    return click.option(option, type=click.IntRange(min=1), metavar="DAYS", help=text)


@click.command("maintain")
@click.option("--execute", is_flag=True, help="Do it. Otherwise only what would be done is told.")
@click.option(
    "--vacuum-hours",
    type=click.IntRange(min=maintaining.VACUUM_HOURS),
    default=maintaining.VACUUM_HOURS,
    metavar="HOURS",
    help="Remove files that no version of the last so many hours has.",
)
@_days("--audit-retention-days", "rows of `audit`")
@_days("--plans-retention-days", "rows of `plans`")
@_days("--drift-retention-days", "rows of `drift`")
@_requested_by
@_common
def maintain(options: Options, execute: bool, vacuum_hours: int, requested_by: str | None, **days: int | None) -> int:
    """Keep the tables in order: compact, vacuum, delete old rows where asked for. A dry run, unless --execute."""
    retention = {name.removesuffix("_retention_days"): each for name, each in days.items() if each is not None}
    with _interruptible():
        settings, ledger = _open(options, "maintain")
        request = maintaining.Request(
            execute=execute,
            vacuum_hours=vacuum_hours,
            retention_days=retention,
            run_id=options.run_id,
            requested_by=requested_by,
        )
        maintained = maintaining.maintain(ledger, settings, request)
    _tell(maintained.to_json(), lambda console: maintaining.render(maintained, console), options)
    return maintained.exit_code


@click.group("policies")
def policies_group() -> None:
    """Try rules out: what there are, whether the settings' are well-formed, what they say of a topic."""


@policies_group.command("list")
@click.option("--format", "as_format", type=click.Choice(["table", "json"]), default="table", help="On stdout.")
def policies_list(as_format: str) -> None:
    """The built-in policies, with their settings."""
    explain.list_policies(as_json=as_format == "json")


@policies_group.command("check")
@_common
def policies_check(options: Options) -> int:
    """Check the settings' policies; looks at no table and no cluster."""
    settings = load_settings(options.config)
    get_session("policies", verbose=options.verbose)
    return explain.check_policies(settings, as_json=options.format == "json")


@policies_group.command("explain")
@click.option("--topic", required=True, help="The topic, as its manifest names it.")
@_common
def policies_explain(options: Options, topic: str) -> int:
    """Each rule, its inputs and its verdict for one topic of one --cluster. Asks the cluster; changes nothing."""
    if len(options.cluster) != 1:
        raise UsageError("policies explain needs one --cluster, the topic's")
    settings, ledger = _open(options, "policies")
    (cluster,) = settings.select(options.cluster)
    return explain.explain(ledger, settings, cluster, topic, as_json=options.format == "json")


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Provision and audit Kafka topics in bulk."""


for _command in (
    load_manifests,
    plan,
    apply,
    provision,
    audit,
    export,
    runs_group,
    clusters_group,
    report_command,
    maintain,
    policies_group,
):
    main.add_command(_command)
