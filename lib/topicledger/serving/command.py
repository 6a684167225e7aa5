"""The command `serve`: a long-lived driver."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

import click

from topicledger import pipeline
from topicledger.apply.dispatch import Context, Stop
from topicledger.apply.progress import Progress
from topicledger.cli import main
from topicledger.cli.durations import Duration
from topicledger.cli.options import Options, common_with, open_ledger, open_settings
from topicledger.config import logs
from topicledger.config.settings import Settings, TablesSettings
from topicledger.errors import ExitCode, TopicLedgerError, UsageError
from topicledger.ledger import runs
from topicledger.ledger.retries import JAVA_IS_GONE, SPARK_ERRORS, first_sentence
from topicledger.ledger.session import for_few_rows, remove_warehouse
from topicledger.ledger.tables import Ledger
from topicledger.ledger.versions import latest_if_exists
from topicledger.notify import Announced
from topicledger.resources import building
from topicledger.schemas import DECLARING, MANIFESTS
from topicledger.serving import protocol
from topicledger.serving.health import Health, memory_bytes
from topicledger.serving.reader import Reader, command_of
from topicledger.serving.server import Command, Pace, Server

__all__ = ["main", "serve"]

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_UNREADABLE: tuple[type[Exception], ...] = (TopicLedgerError, OSError, *SPARK_ERRORS)
_LOOK_SECONDS = 1.0
"""Pause between checks for a new version of `manifests`."""


class SessionIsGone(Exception):
    """Spark's session can't be used any more, though this process still has its Java or its client."""


class OwnInterrupt:
    """The handler of SIGINT: ends the server as SIGTERM does, unless a client's Ctrl-C was passed on."""

    def __init__(self, server: Server, ending: Stop) -> None:
        before = signal.getsignal(signal.SIGINT)
        # A shell may have started the server with Ctrl-C ignored.
        self._then = before if callable(before) else signal.default_int_handler
        self._server, self._ending = server, ending

    def note(self) -> None:
        """Note an interrupt that a command handles."""
        if not self._server.interrupted:
            self._ending.set()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.note()
        self._then(number, frame)


@main.command(
    "serve", short_help="Keep a driver running for fast commands.", epilog="Example: topicledger serve --every 5m"
)
@click.option(
    "--every",
    type=Duration("s", least=1),
    help="Also provision as soon as `manifests` change, and at this interval (300 for seconds, 5m, 1h). "
    "Default: only run commands.",
)
@click.option(
    "--health-file", type=click.Path(path_type=Path), help="Write the server's state to this file regularly, as JSON."
)
@click.option(
    "--max-memory",
    type=click.IntRange(min=1),
    default=4096,
    show_default=True,
    metavar="MIB",
    help="Restart between two commands if the server uses more memory than this.",
)
@common_with(without=("run_id", "format"))
def serve(options: Options, every: float | None, health_file: Path | None, max_memory: int) -> int:
    """Run the console script's commands with these settings in a long-lived driver, without starting Spark for each.

    SIGTERM ends the server after the batches under way; their run can be resumed.
    """
    if every is None and (options.cluster or options.result_file is not None):
        raise UsageError("--cluster and --result-file are for the runs of --every: without it, leave them out")
    if every is not None:
        options.metrics.leave_file()
    ending = Stop()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    health = Health(health_file)

    def do(arguments: Sequence[str], announced: Announced | None = None) -> int:
        with health.during(arguments) as code:
            code.append(carried_out(arguments, announced))
        return code[0]

    pace = None if every is None else Pace(every=every)
    announced = Announced.taken_over()
    own = partial(do, announced=announced)
    server: Server | None = None
    try:
        settings, served = open_settings(options), options.config.read_bytes()
        path = protocol.socket_of(options.config)
        reader = Reader(command_of(options.config, protocol.reader_of(path), options.log_format))
        server = Server(path, do, is_ending=ending.is_set, is_for_reader=reader.runs)
        with server.listening(), health.kept(), ExitStack() as beside:
            click.echo(f"starting Spark for {options.config}; commands start their own until it is ready", err=True)
            with server.alone():
                # The first `load-manifests` may create the tables later.
                ledger = open_ledger(options, settings, "serve", new=True)
                _warm_up(settings, ledger)
                _reap()
            # Spark has its own, which stops its queries.
            signal.signal(signal.SIGINT, OwnInterrupt(server, ending))
            beside.enter_context(reader.running())
            beside.callback(server.close)
            health.ready()
            click.echo(f"serving {options.config}: commands with these settings run here", err=True)
            must_restart = False
            while not ending.is_set() and not must_restart:
                did = server.do_next(_LOOK_SECONDS)
                try:
                    if did:
                        # Any call notices that Java has ended: all later commands would fail.
                        _require_session(lambda: ledger.spark.conf.get("spark.app.name", ""))
                    elif pace is not None:
                        with server.alone() as free:
                            must_restart = free and are_edited(options, served)
                            did = free and not must_restart and provisioned_if_due(pace, ledger, options, served, own)
                except JAVA_IS_GONE:
                    log.warning("Spark's Java process has ended: restarting")
                    must_restart = True
                except SessionIsGone as error:
                    log.warning("Spark's session can't be used any more: restarting: %s", error)
                    must_restart = True
                health.waiting()
                if did and (used := memory_bytes() // _MIB) > max_memory:
                    log.warning("%d MiB of memory, more than --max-memory %d: restarting", used, max_memory)
                    must_restart = True
                # Java may still answer the interrupted call, and its answer would be taken for that of a later call.
                must_restart |= server.interrupted
    except KeyboardInterrupt:
        # A client's Ctrl-C may also arrive right before or after its command.
        if server is None or not server.interrupted:
            return ExitCode.DONE
    if not ending.is_set():
        announced.hand_over()
        remove_warehouse()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return ExitCode.DONE


def _reap() -> None:
    """Let the system forget the processes that the program before a restart has left: its Java, and its reader."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def carried_out(arguments: Sequence[str], announced: Announced | None = None) -> int:
    """Run a command and return its exit code; `announced`: the states that the server's own runs have announced."""
    try:
        with logs.kept():
            main(list(arguments), prog_name="topicledger", obj=announced)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return ExitCode.DONE


def are_edited(options: Options, served: bytes) -> bool:
    """Return whether to restart with other settings, and say so: the file differs from `served`, and can be read."""
    if _are_as_served(options.config, served):
        return False
    try:
        open_settings(options)
    except (OSError, TopicLedgerError):
        return False
    log.warning("the settings in %s changed: restarting", options.config)
    return True


def provisioned_if_due(pace: Pace, ledger: Ledger, options: Options, served: bytes, do: Command) -> bool:
    """Provision if due, and return whether it was. Raises `JAVA_IS_GONE` if Spark's Java process has ended, and
    SessionIsGone if its session can't be used.

    `served`: the content of the settings file when the server started.
    """
    if not _are_as_served(options.config, served):
        # The run would read the new ones: other tables than this server watches, or other guards.
        pace.held_up(f"the settings in {options.config} changed, and can't be used: no run begins until they can")
        return False
    try:
        version = latest_if_exists(ledger, MANIFESTS)
        declared = version is not None or any(ledger.exists(table) for table in DECLARING)
    except JAVA_IS_GONE:
        # Java is gone, and the session with it.
        raise
    except _UNREADABLE as error:
        _require_session(lambda: ledger.spark.range(1).collect())
        pace.held_up(f"{MANIFESTS.name} can't be read, trying again: {first_sentence(error)}")
        return False
    if not declared:
        pace.held_up(f"nothing is declared in {ledger.root} yet: waiting for the first load")
        return False
    if not pace.is_due(version):
        return False
    pace.begun(version)
    clusters = [part for name in options.cluster for part in ("--cluster", name)]
    arguments = ["provision", "--config", str(options.config), *clusters, "--log-format", options.log_format]
    files = [("--result-file", options.result_file), ("--metrics-file", options.metrics_file)]
    arguments += [part for option, path in files if path is not None for part in (option, str(path))]
    try:
        code = do(arguments)
    except JAVA_IS_GONE:
        raise
    except Exception:
        # A bug in one run must not end the server: clients' commands and later runs may still succeed.
        log.exception("a run failed unexpectedly")
        code = ExitCode.ERROR
    pace.ended(code)
    return True


def _require_session(use: Callable[[], object]) -> None:
    """Use the session. Raises SessionIsGone: its application or its server of Spark Connect may have ended."""
    try:
        use()
    except JAVA_IS_GONE:
        # Java is gone, and the session with it.
        raise
    except SPARK_ERRORS as error:
        raise SessionIsGone(first_sentence(error)) from error


def _are_as_served(config: Path, served: bytes) -> bool:
    try:
        return config.read_bytes() == served
    except OSError:
        return False


def _warm_up(settings: Settings, ledger: Ledger) -> None:
    """Plan once on temporary, empty tables, so that Java has loaded and compiled everything. Changes no cluster."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="topicledger-") as folder, for_few_rows(ledger.spark):
        own = replace(settings, tables=TablesSettings(root=str(Path(folder) / "ledger"), single_writer=True))
        context = Context(progress=Progress(shown=False), stop=Stop(), policies=building.from_settings(own))
        try:
            run = runs.start(Ledger(ledger.spark, own.tables.root), own, runs.Request(command="plan"))
            pipeline.provision(run, context, planning_only=True)
        except TopicLedgerError as error:
            log.warning("the warm-up failed; commands still run: %s", error)
    log.info("warmed up in %.1f s", time.monotonic() - began)
