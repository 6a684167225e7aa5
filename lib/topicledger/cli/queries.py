"""`sql`, `views` and `catalog`: questions to the tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from pyspark.sql import DataFrame, Row

from topicledger import atomic
from topicledger.apply.display import display_only
from topicledger.cli.options import (
    FEW_BYTES,
    Options,
    ReadingCommand,
    common_with,
    open_ledger,
    open_settings,
    print_result,
)
from topicledger.config.reading import load_settings
from topicledger.errors import ExitCode, UsageError
from topicledger.ledger.session import for_few_rows
from topicledger.queries import asking, catalogue, printing, views
from topicledger.text import counted, document, printable


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, nl=False)


_PRINTED: Mapping[str, Callable[[DataFrame], None]] = {
    "table": printing.print_table,
    "csv": lambda rows: _print_lines(printing.csv_lines(rows)),
    "json": lambda rows: _print_lines(printing.json_lines(rows)),
}


@click.command(
    "sql",
    cls=ReadingCommand,
    short_help="Run one query that reads the tables and views.",
    epilog="Example: topicledger sql \"SELECT * FROM changes WHERE topic = 'payments.new'\"",
)
@click.argument("query", required=False)
@click.option(
    "-f", "--file", type=click.Path(path_type=Path), metavar="FILE", help="Read the query from this file; - for stdin."
)
@common_with(*_PRINTED, without=("cluster", "run_id", "result_file"))
def sql(options: Options, query: str | None, file: Path | None) -> int:
    """Run one QUERY that only reads; the tables and views have their own names, such as `audit` or `changes`."""
    text = _text(query, file)
    settings = load_settings(options.config)
    ledger = open_ledger(options, settings, "sql")
    with for_few_rows(ledger.spark) as for_many, asking.answered(ledger, settings, text) as rows:
        if asking.bytes_of(ledger, text) > FEW_BYTES:
            for_many()
        _PRINTED[options.format](rows)
        sys.stdout.flush()
    return ExitCode.DONE


def _text(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise UsageError('sql needs one query: either as an argument, such as "SELECT * FROM changes", or with -f')
    if query is not None:
        return query
    assert file is not None, "one of both is given"
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the query in {printable(str(file))} is not UTF-8") from error
    except OSError as error:
        raise UsageError(f"can't read the query in {printable(str(file))}: {error.strerror}") from error


@click.command("views", short_help="Create the views in a catalog.", epilog="Example: topicledger views")
@common_with(without=("cluster", "run_id"))
def views_command(options: Options) -> int:
    """Create the views beside the tables in a catalog, with the values of [views]; run it again after a change."""
    settings = open_settings(options)
    ledger = open_ledger(options, settings, "views", new=True)
    names = views.create(ledger, settings)
    result = document(ExitCode.DONE, {"views": [f"{ledger.root}.{name}" for name in names]})
    with display_only("the result", instead="the catalog has the views"):
        print_result(result, lambda console: console.print(created(names, ledger.root), markup=False), options)
    return ExitCode.DONE


@click.command(
    "catalog",
    cls=ReadingCommand,
    short_help="Write the live topics for a data catalog.",
    epilog="Example: topicledger catalog --to topics.json",
)
@click.option(
    "--to", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The file to write, or to replace."
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["datahub", "list"]),
    default="datahub",
    show_default=True,
    help="DataHub's metadata change proposals (JSON), or a line for each topic: cluster, tab, topic.",
)
@click.option(
    "--environment",
    type=click.Choice(catalogue.ENVIRONMENTS),
    help="DataHub's environment of the topics. Default: PROD.",
)
@common_with(without=("run_id",))
def catalog(options: Options, to: Path, form: str, environment: str | None) -> int:
    """Write the live topics, with owners, main configs and labels, to a file for a data catalog."""
    if form == "list" and environment is not None:
        raise UsageError("--environment is for DataHub: leave it out with --as list")
    settings = open_settings(options)
    clusters = [cluster.name for cluster in settings.select(options.cluster)]
    if not to.absolute().parent.is_dir():
        raise UsageError(f"there is no folder for --to {printable(str(to))}")
    ledger = open_ledger(options, settings, "catalog")
    count = 0

    def counting(rows: Iterable[Row]) -> Iterator[Row]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    with for_few_rows(ledger.spark):
        rows = counting(catalogue.topics(ledger, settings, clusters))
        if form == "list":
            lines = catalogue.as_list(rows)
        else:
            gone = catalogue.removed(ledger, settings, clusters)
            lines = catalogue.as_datahub(rows, environment or "PROD", gone)
        _write(to, lines)
    result = document(ExitCode.DONE, {"topics": count, "to": str(to)})
    with display_only("the result", instead=f"the topics are in {to}"):
        print_result(result, lambda console: console.print(written(count, to), markup=False, soft_wrap=True), options)
    return ExitCode.DONE


def created(names: Sequence[str], root: str) -> str:
    """Return the sentence about created views."""
    return f"created {counted(len(names), 'view')} in {printable(root)}"


def written(count: int, to: Path) -> str:
    """Return the sentence about a written catalogue."""
    return f"wrote {counted(count, 'topic')} to {printable(str(to))}"


def _write(path: Path, lines: Iterable[str]) -> None:
    try:
        atomic.write(path, lines)
    except OSError as error:
        raise UsageError(f"can't write {printable(str(path))}: {error.strerror}") from error
