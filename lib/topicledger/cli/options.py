"""Options of every command, and the code by which each opens its tables, ends and prints its result."""

from __future__ import annotations

import dataclasses
import functools
import logging
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

import click
from rich.console import Console

from topicledger import atomic
from topicledger.cli.metrics import Metrics
from topicledger.config import logs
from topicledger.config.reading import load_settings
from topicledger.config.roots import missing_root
from topicledger.config.settings import Settings
from topicledger.errors import ExitCode, TopicLedgerError, UsageError
from topicledger.ledger import runs
from topicledger.ledger.definitions import require_root
from topicledger.ledger.retries import SPARK_ERRORS, first_sentence
from topicledger.ledger.run import Run
from topicledger.ledger.session import for_few_rows, get_session
from topicledger.ledger.tables import Ledger
from topicledger.ledger.who import versions
from topicledger.plan.people import person_key
from topicledger.schemas import MANIFESTS
from topicledger.text import console, document, printable

log = logging.getLogger(__name__)

Command = Callable[..., Any]


FEW_BYTES = 1_000_000
"""Up to this size of `manifests`, some 50,000 rows, a run's queries are interpreted instead of compiled. For a query of
`sql`, it is the size of its tables."""


def _show_versions(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(", ".join(f"{name} {each}" for name, each in versions().items()))
        context.exit()


_version_option = click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_versions,
    help="Show the versions of topicledger, Spark, Delta and kafka-python.",
)


ALIASES = {"load_manifests": "load-manifests", **runs.NAMES}
"""Other spellings of commands -> their names. They are not in the list of commands."""


_HELP = {"help_option_names": ["-h", "--help"]}


class _Commands(click.Group):
    """The commands by their names and by `ALIASES`."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, which takes -h by itself, too: spark-submit runs it without this group."""
        super().add_command(cmd, name)
        for each in (cmd, *(cmd.commands.values() if isinstance(cmd, click.Group) else ())):
            each.context_settings.update(_HELP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))


class ReadingCommand(click.Command):
    """A command that changes no table and no cluster, so that a server may run it beside a run."""


def only_reads(arguments: Sequence[str]) -> bool:
    """Return whether these arguments call a `ReadingCommand`."""
    command: click.Command | None = main
    for name in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), name)
    return isinstance(command, ReadingCommand)


@click.group(cls=_Commands, context_settings=_HELP)
@_version_option
def main() -> None:
    """Provision and audit Kafka topics in bulk."""


@main.command("help", short_help="Show the help of a command.", epilog="Example: topicledger help runs show")
@click.argument("command", nargs=-1)
@click.pass_context
def help_command(context: click.Context, command: tuple[str, ...]) -> None:
    """Show the help of a command, or the list of commands."""
    assert context.parent is not None, "a command of the group"
    found, of_found = context.parent.command, context.parent
    for name in command:
        inner = found.get_command(of_found, name) if isinstance(found, click.Group) else None
        if inner is None:
            raise click.UsageError(f"there is no command {' '.join(command)}: `help` lists the commands")
        found, of_found = inner, click.Context(inner, of_found, info_name=name)
    click.echo(found.get_help(of_found))


class Renamed(click.Option):
    """An option that is accepted by its former names, too. No help shows these."""

    def __init__(self, *arguments: Any, former: Sequence[str], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser accept all names."""
        shown, self.opts = self.opts, [*self.opts, *self.former]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def _requester(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    """Return the requester's name. A blank one, such as from a variable that isn't set, would let them approve."""
    if given is not None and not person_key(given):
        raise click.BadParameter("the name is blank: leave the option out, or name the requester")
    return given


requested_by_option = click.option(
    "--requested-by", callback=_requester, help="Name of the requester; default: the OS user."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every command."""

    config: Path
    run_id: str | None = None
    cluster: tuple[str, ...] = ()
    format: str = "table"
    result_file: Path | None = None
    log_format: Literal["text", "json"] = "text"
    verbose: bool = False
    metrics_file: Path | None = None
    metrics: Metrics = dataclasses.field(default_factory=Metrics, init=False)
    """Values that the command writes to `metrics_file`."""


def common(command: Command) -> Command:
    """Add the common options, as one argument `options`, and turn errors into a message and an exit code."""
    return common_with("table", "json")(command)


_POSITIONAL = "run"
"""Argument of commands about one run."""
RUN_ID = "Resume this run, or give a new one this id; default: a new sortable id."
NEW_ID = "A new id for the run; default: a sortable one."
CLUSTERS = "Only this cluster of the settings; may be repeated."
THE_CLUSTER = "Name of the cluster; required, once."
AS_PLANNED = "As the run was planned: others are refused."


def common_with(
    *formats: str,
    without: Collection[str] = (),
    run_id: str = RUN_ID,
    cluster: str = CLUSTERS,
    positional: str | None = None,
) -> Callable[[Command], Command]:
    """Return `common` with other output formats, of which the first is the default.

    `without`: fields of `Options` that do nothing for the command, which has no option for them. `run_id`: the help
    of --run-id, for commands that don't both start and resume runs; `cluster`: that of --cluster. `positional`: how
    the help shows the argument that is the run; then --run-id is its former spelling, which no help shows.
    """
    return functools.partial(
        _common,
        formats=formats or ("table", "json"),
        without=without,
        run_id=run_id,
        cluster=cluster,
        positional=positional,
    )


def _common(
    command: Command,
    formats: Sequence[str],
    without: Collection[str],
    run_id: str,
    cluster: str,
    positional: str | None,
) -> Command:
    fields = [field.name for field in dataclasses.fields(Options) if field.init and field.name not in without]

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        if positional is not None:
            arguments["run_id"] = _one_run(arguments.pop(_POSITIONAL), arguments["run_id"])
        options = Options(**{name: arguments.pop(name) for name in fields})
        logs.set_up(options.log_format, verbose=options.verbose, run_id=options.run_id)
        code = ExitCode.ERROR
        try:
            code = ExitCode(_carried_out(command, options, arguments))
        finally:
            if options.metrics_file is not None:
                _write_metrics(options.metrics_file, options.metrics, code)
        sys.exit(int(code))

    path, option = click.Path(path_type=Path), click.option
    given = {
        "config": option(
            "--config",
            type=path,
            required=True,
            envvar="TOPICLEDGER_CONFIG",
            show_envvar=True,
            help="Run settings (TOML).",
        ),
        "run_id": option("--run-id", help=run_id, hidden=positional is not None),
        "cluster": option("--cluster", multiple=True, help=cluster),
        "format": option("--format", type=click.Choice(formats), default=formats[0], help="On stdout."),
        "result_file": option("--result-file", type=path, help="Write the result (JSON) here as well."),
        "log_format": option("--log-format", type=click.Choice(["text", "json"]), default="text", help="On stderr."),
        "metrics_file": option("--metrics-file", type=path, help="Write metrics (Prometheus) here."),
        "verbose": option("--verbose", is_flag=True, help="Log what is done, and Spark's own log, on stderr."),
        "version": _version_option,
    }
    for name, decorate in reversed(given.items()):
        call = call if name in without else decorate(call)
    # Not required: --run-id may name the run, too.
    return call if positional is None else click.argument(_POSITIONAL, required=False, metavar=positional)(call)


def _one_run(argument: str | None, option: str | None) -> str | None:
    """Return the run that an argument or --run-id names. Raises click's UsageError if they name different runs."""
    if argument is not None and option not in (None, argument):
        raise click.UsageError(f"RUN_ID {printable(argument)} and --run-id {printable(str(option))} differ: give one")
    return option if argument is None else argument


def _carried_out(command: Command, options: Options, arguments: Mapping[str, Any]) -> int:
    try:
        return int(command(options=options, **arguments))
    except TopicLedgerError as error:
        return _failed(str(error), error.exit_code, options, error.run_id, error.details)
    except KeyboardInterrupt:
        has_id = any(each.name == "run_id" for each in click.get_current_context().command.params)
        again = "start the run again with its id" if has_id else "start the command again"
        return _failed(f"interrupted; {again}", ExitCode.ERROR, options)
    except SPARK_ERRORS as error:
        return _failed(f"Spark failed: {first_sentence(error)} (more with --verbose)", ExitCode.ERROR, options)


def _write_metrics(path: Path, metrics: Metrics, code: ExitCode) -> None:
    names = []
    context: click.Context | None = click.get_current_context()
    while context is not None and context.command is not main:
        names.append(str(context.command.name))
        context = context.parent
    try:
        name = " ".join(reversed(names))
        former = {name: former for former, name in runs.NAMES.items()}
        metrics.write(path, former.get(name, name), code)
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
        result = {"run_id": run_id, "error": message, **(details or {})}
        _write(options.result_file, document(code, result, indent=None))
    return code


def _write(path: Path, text: str) -> None:
    try:
        atomic.write(path, [text, "\n"])
    except OSError as error:
        click.echo(f"error: can't write the result to {path}: {error.strerror}", err=True)


def print_result(document: str, render: Callable[[Console], None], options: Options) -> None:
    """Print a result on stdout in the requested format, and write it to the result file."""
    if options.result_file is not None:
        _write(options.result_file, document)
    if options.format == "json":
        click.echo(document)
    else:
        render(console(160))
    # A full disk or a closed pipe fails here, so that its reason can be reported, and not when Python ends.
    sys.stdout.flush()


def open_settings(options: Options) -> Settings:
    """Read and check the settings before Spark starts; also raises UsageError if a result can't be written."""
    for option, path in (("--result-file", options.result_file), ("--metrics-file", options.metrics_file)):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"there is no folder for {option} {path}")
    settings = load_settings(options.config)
    settings.select(options.cluster)
    return settings


def open_ledger(options: Options, settings: Settings, name: str, *, new: bool = False) -> Ledger:
    """Open the tables of the settings for the command `name`; with `new`, they needn't exist yet."""
    if not new:
        require_root(settings.tables.root)
    elif (missing := missing_root(settings.tables.root)) is not None:
        # A relative root names another folder in each working folder, so a second ledger could come up unnoticed.
        click.echo(f"there are no tables at {missing} yet: they will be new", err=True)
    session = get_session(name, verbose=options.verbose, remote=settings.spark.remote)
    ledger = Ledger(session, settings.tables.root, settings.tables.on_create)
    if not settings.tables.single_writer:
        ledger.require_atomic_commits(refuse=name in ("apply", "provision"))
    return ledger


@contextmanager
def started(request: runs.Request, options: Options, settings: Settings, ledger: Ledger) -> Iterator[Run]:
    """Context of a new or a resumed run, in a session that is tuned for its number of manifests."""
    with for_few_rows(ledger.spark) as for_many, ThreadPoolExecutor(1) as beside:
        # Read first: a table that is being created can't be read.
        size = beside.submit(ledger.size, MANIFESTS) if ledger.exists(MANIFESTS) else None
        run = runs.start(ledger, settings, request)
        if size is not None:
            run.commits.add(lambda: for_many() if size.result().bytes > FEW_BYTES else None)
        logs.set_up(options.log_format, verbose=options.verbose, run_id=run.run_id)
        yield run


@contextmanager
def with_resume_hint(run: Run) -> Iterator[None]:
    """Context that prints how to resume the run if it isn't finished at the end."""
    try:
        yield
    except BaseException as error:
        if not run.in_runs:
            raise
        # A wrong use says itself what to give.
        if not isinstance(error, UsageError):
            click.echo(f"run {run.run_id} is not finished; the same command with this id resumes it", err=True)
        if isinstance(error, TopicLedgerError):
            error.of_run(run.run_id)
        raise


@contextmanager
def interruptible() -> Iterator[None]:
    """Context in which SIGTERM acts like Ctrl-C, for commands that change no cluster and can be resumed."""

    asked = False
    before = signal.getsignal(signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal asked
        asked = True
        if callable(before):
            # A server that runs this command ends, too.
            before(number, frame)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except SPARK_ERRORS:
        # The interrupted code may have reported the interrupt as its own failure.
        if asked:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
