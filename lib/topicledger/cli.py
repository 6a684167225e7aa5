"""The commands: each is its name, its help, its options, its call. jobs/*.py and the console script share them."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console

from topicledger import __version__, explain, logs, phases, runs, show
from topicledger.dispatch import Context
from topicledger.errors import ExitCode, TopicLedgerError, UsageError
from topicledger.hints import printable
from topicledger.loading import load
from topicledger.model import RunState
from topicledger.progress import Progress
from topicledger.session import get_session
from topicledger.settings import Settings, load_settings
from topicledger.summary import Summary, render, summarise
from topicledger.tables import Ledger, first_sentence

log = logging.getLogger(__name__)

Command = Callable[..., Any]


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


def _common(command: Command) -> Command:
    """Adds the options that every command takes, as one `options`; errors become a message and an exit code."""
    fields = [field.name for field in dataclasses.fields(Options)]

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        options = Options(**{name: arguments.pop(name) for name in fields})
        logs.set_up(options.log_format, verbose=options.verbose, run_id=options.run_id)
        try:
            code = command(options=options, **arguments)
        except TopicLedgerError as error:
            _fail(str(error), error.exit_code, options, error.run_id)
        except KeyboardInterrupt:
            _fail("interrupted; start the run again with its id", ExitCode.ERROR, options)
        except (PySparkException, Py4JError) as error:
            _fail(f"Spark failed: {first_sentence(error)} (more with --verbose)", ExitCode.ERROR, options)
        sys.exit(int(code))

    decorators = [
        click.option("--config", type=click.Path(path_type=Path), required=True, help="Run settings (TOML)."),
        click.option("--run-id", help="Take this run up again, or name a new one; default: a new sortable id."),
        click.option("--cluster", multiple=True, help="Only this cluster of the settings; may be repeated."),
        click.option("--format", type=click.Choice(["table", "json"]), default="table", help="On stdout."),
        click.option("--result-file", type=click.Path(path_type=Path), help="Write the result (JSON) here as well."),
        click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="On stderr."),
        click.option("--verbose", is_flag=True, help="Log what is done, and Spark's own log, on stderr."),
        click.version_option(__version__),
    ]
    for decorate in reversed(decorators):
        call = decorate(call)
    return call


def _fail(message: str, code: ExitCode, options: Options, run_id: str | None = None) -> NoReturn:
    if options.verbose:
        log.exception("stopped by")
    click.echo(f"error: {printable(message)}", err=True)
    if options.result_file is not None:
        document = {"format_version": 1, "run_id": run_id, "exit_code": int(code), "error": message}
        _write(options.result_file, json.dumps(document))
    sys.exit(int(code))


def _write(path: Path, text: str) -> None:
    try:
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        click.echo(f"error: can't write the result to {path}: {error.strerror}", err=True)


def _show(summary: Summary, options: Options) -> int:
    if options.result_file is not None:
        _write(options.result_file, summary.to_json())
    if options.format == "json":
        click.echo(summary.to_json())
    else:
        render(summary, Console(width=None if sys.stdout.isatty() else 160))
    return summary.exit_code


def _open(options: Options, name: str, *, new: bool = False) -> tuple[Settings, Ledger]:
    if options.result_file is not None and not options.result_file.absolute().parent.is_dir():
        raise UsageError(f"there is no folder for --result-file {options.result_file}")
    settings = load_settings(options.config)
    settings.select(options.cluster)
    ledger = Ledger(get_session(name, verbose=options.verbose), settings.tables.root)
    if not new:
        ledger.require_root()
    return settings, ledger


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """SIGTERM ends the batch under way, appends what is known and leaves the run to be taken up again."""
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(request: runs.Request, options: Options) -> int:
    settings, ledger = _open(options, request.command)
    with _stoppable() as stop:
        run = runs.start(ledger, settings, request)
        logs.set_up(options.log_format, verbose=options.verbose, run_id=run.run_id)
        context = Context(progress=Progress(), stop=stop, wait_visible=request.wait_visible)
        planning_only = request.command == "plan"
        if run.state is RunState.FINISHED:
            summary = dataclasses.replace(summarise(run, planning_only=False), exit_code=run.exit_code or 0)
            return _show(summary, options)
        try:
            summary = phases.carry_out(run, context, planning_only=planning_only, detailed=request.detailed_exitcode)
        except BaseException as error:
            click.echo(f"run {run.run_id} is not finished; --run-id {run.run_id} takes it up again", err=True)
            if isinstance(error, TopicLedgerError):
                error.run_id = run.run_id
            raise
    return _show(summary, options)


_requested_by = click.option("--requested-by", help="Who asked for the run; default: the OS user.")
_wait_visible = click.option(
    "--wait-visible",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Verify waits this long until every applied partition has a leader.",
)


@click.command("plan")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where changes are pending.")
@_requested_by
@_common
def plan(options: Options, detailed_exitcode: bool, requested_by: str | None) -> int:
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
    )


@click.command("apply")
@_wait_visible
@_common
def apply(options: Options, wait_visible: float) -> int:
    """Carry out a saved plan: --run-id names it."""
    if options.run_id is None:
        raise UsageError("apply needs --run-id: the run that `plan` made; see `runs list`")
    return _run(
        runs.Request(command="apply", run_id=options.run_id, clusters=options.cluster, wait_visible=wait_visible),
        options,
    )


@click.command("provision")
@_wait_visible
@_requested_by
@_common
def provision(options: Options, wait_visible: float, requested_by: str | None) -> int:
    """Plan and apply in one run."""
    return _run(
        runs.Request(
            command="provision",
            run_id=options.run_id,
            clusters=options.cluster,
            requested_by=requested_by,
            wait_visible=wait_visible,
        ),
        options,
    )


@click.command("load_manifests")
@click.argument("files", nargs=-1, required=True)
@click.option("--replace", is_flag=True, help="The files are the whole truth for the clusters they name.")
@click.option("--stdin-format", type=click.Choice(["yaml", "json", "csv"]), help="What comes on stdin (FILE is -).")
@_common
def load_manifests(options: Options, files: tuple[str, ...], replace: bool, stdin_format: str | None) -> int:
    """Load YAML, JSON or CSV FILES (or folders, or -) into the manifests table."""
    settings, ledger = _open(options, "load_manifests", new=True)
    paths: list[Path | Literal["-"]] = ["-" if name == "-" else Path(name) for name in files]
    loaded = load(ledger, settings, paths, sys.stdin, stdin_format=cast(Any, stdin_format), replace=replace)
    document = json.dumps({"format_version": 1, "exit_code": 0, **dataclasses.asdict(loaded)})
    if options.result_file is not None:
        _write(options.result_file, document)
    if options.format == "json":
        click.echo(document)
    else:
        removed = f", {loaded.removed} removed" if replace else ""
        click.echo(f"{loaded.added} added, {loaded.changed} changed, {loaded.unchanged} unchanged{removed}")
    return ExitCode.DONE


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


for _command in (load_manifests, plan, apply, provision, runs_group, policies_group):
    main.add_command(_command)
