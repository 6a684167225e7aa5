"""`load-manifests` and `export`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import click
from pyspark.sql import DataFrame

from topicledger.apply.display import display_only
from topicledger.cli.loading import paths_of, replace_options, replaced, var_option
from topicledger.cli.options import (
    NEW_ID,
    Options,
    Renamed,
    common_with,
    interruptible,
    open_ledger,
    open_settings,
    print_result,
    requested_by_option,
)
from topicledger.cli.scope import check_owners, named
from topicledger.errors import ExitCode, UsageError
from topicledger.files import export as exporting
from topicledger.files import listings
from topicledger.files.changes import frames
from topicledger.files.exported import ExportRequest
from topicledger.files.exported import render as render_exported
from topicledger.files.foreign.formats import FOREIGN_FORMATS
from topicledger.files.left_behind import left_behind
from topicledger.files.load import Loaded, compare, leftovers, load, removals
from topicledger.files.read import Foreign, read, remarks
from topicledger.files.writing import as_yaml
from topicledger.manifests.files import ParsedManifests
from topicledger.resources.registry import KINDS
from topicledger.schemas import DECLARING
from topicledger.text import document


@click.command(
    "load-manifests",
    short_help="Load manifest files into the tables.",
    epilog="Example: topicledger load-manifests manifests/ --dry-run",
)
@click.argument("files", nargs=-1, required=True)
@replace_options
@click.option("--stdin-format", type=click.Choice(["yaml", "json", "csv"]), help="The format of stdin (FILE is -).")
@click.option(
    "--from", "foreign", type=click.Choice(list(FOREIGN_FORMATS)), help="FILES are in the format of another tool."
)
@click.option("--strict", is_flag=True, help="Warnings, such as unknown names of configs, are errors.")
@var_option
@click.option("--dry-run", is_flag=True, help="Check and compare the files, and write nothing.")
@click.option("--show", is_flag=True, help="With --dry-run: print the rows that the files expand to, by cluster.")
@requested_by_option
@common_with(run_id=NEW_ID)
def load_manifests(
    options: Options,
    files: tuple[str, ...],
    replace: bool,
    replace_owner: tuple[str, ...],
    stdin_format: str | None,
    foreign: str | None,
    strict: bool,
    variables: Mapping[str, str],
    dry_run: bool,
    show: bool,
    requested_by: str | None,
) -> int:
    """Load YAML, JSON or CSV FILES (or folders, or -) into the manifests table; a row in `runs` records the requester.

    If more rows would be removed than guards.max_removed_rows (default 0), they are listed and nothing is loaded: exit
    5. With --cluster, entries of other clusters are left out, and counted on stderr; if all are, exit 2. With --from,
    unsupported fields are listed on stderr, and --cluster gives the cluster of all topics instead of the files.
    """
    if foreign is not None and len(options.cluster) > 1:
        raise UsageError("load-manifests --from takes only one --cluster, the cluster of all topics")
    replacing = replaced(replace, replace_owner)
    if stdin_format is not None and "-" not in files:
        raise UsageError("--stdin-format is for stdin: give - among the FILES, or leave it out")
    if dry_run and (options.run_id is not None or requested_by is not None):
        raise UsageError("--dry-run adds no run: leave out --run-id and --requested-by")
    if show and not dry_run:
        raise UsageError("--show prints what files expand to, and loads nothing: give --dry-run with it")
    if show and replacing is not None:
        raise UsageError("--show prints only what files expand to: leave out --replace and --replace-owner")
    of_other_tool = None if foreign is None else Foreign(form=foreign, cluster=next(iter(options.cluster), None))
    settings = open_settings(options)
    parsed = read(
        settings,
        paths_of(files),
        sys.stdin,
        stdin_format=cast(Any, stdin_format),
        foreign=of_other_tool,
        clusters=options.cluster if foreign is None else (),
        strict=strict,
        variables=variables,
    )
    if parsed.left_out and not parsed.every_row:
        raise UsageError(f"{'; '.join(remarks(parsed))}: name a cluster that they have; nothing was loaded")
    if show:
        return _show_expanded(parsed, options)
    ledger = open_ledger(options, settings, "load_manifests", new=True)
    there: Mapping[str, DataFrame] = {}
    if foreign is not None and FOREIGN_FORMATS[foreign].is_listing:
        there = listings.declared(ledger, parsed)
        parsed = listings.with_declared(parsed, there)
    if replacing is not None:
        of_files = list(frames(ledger.spark, parsed.tables).values())
        check_owners(ledger, settings, replacing.owners, of_files, option="--replace-owner")
    if dry_run:
        loaded = compare(ledger, settings, parsed, replace=replacing)
    else:
        loaded = load(
            ledger,
            settings,
            parsed,
            replace=replacing,
            foreign=of_other_tool,
            run_id=options.run_id,
            requested_by=requested_by,
            compared=there,
        )
    for change in ("added", "changed", "unchanged", "removed"):
        options.metrics.set("topicledger_manifests", getattr(loaded, change), change=change)
    with display_only("the result", instead="`runs list` has the run"):
        for line in remarks(parsed):
            click.echo(line, err=True)
        for kind in KINDS:
            for line in kind.entries.expansions(parsed.rows_of(kind.table.name)) if kind.entries.expansions else ():
                click.echo(line, err=True)
        for line in (*leftovers(loaded), *left_behind(ledger, parsed, replacing)):
            click.echo(line, err=True)
        found = document(ExitCode.DONE, {"dry_run": dry_run, **dataclasses.asdict(loaded)}, indent=None)
        lines = in_lines(loaded, dry_run=dry_run)
        print_result(found, lambda _: click.echo("\n".join(lines)), options)
    return ExitCode.DONE


def _show_expanded(parsed: ParsedManifests, options: Options) -> int:
    """Print the rows of files as one YAML document for each cluster; needs no table, and starts no Spark."""
    for line in (*remarks(parsed), *leftovers(parsed)):
        click.echo(line, err=True)
    tables = {table.name: (*table.schema.names, "file", "line") for table in DECLARING}
    rows = {
        name: [{column: row.value(column) for column in tables[name]} for row in those]
        for name, those in parsed.tables.items()
    }
    told = {
        "not_carried_over": list(map(dataclasses.asdict, parsed.not_carried_over)),
        "warnings": list(map(dataclasses.asdict, parsed.warnings)),
        "skipped": dict(parsed.skipped),
    }
    found = document(ExitCode.DONE, {"dry_run": True, "rows": rows, **told}, indent=None)
    print_result(found, lambda _: click.echo("".join(as_yaml(rows)), nl=False), options)
    return ExitCode.DONE


def in_lines(loaded: Loaded, *, dry_run: bool) -> list[str]:
    """Lines about a load for people: counts first, then removed rows."""
    counts = f"{loaded.added} added, {loaded.changed} changed, {loaded.unchanged} unchanged, {loaded.removed} removed"
    for table, of_table in loaded.resources.items():
        counts += f"; {table}: {', '.join(f'{count} {name}' for name, count in of_table.items())}"
    if loaded.not_carried_over:
        counts += f"; {len(loaded.not_carried_over):,} not carried over"
    if dry_run:
        counts = f"dry run, nothing was written: {counts}"
    return [counts, *removals(loaded)]


def _with_resources(command: Callable[..., int]) -> Callable[..., int]:
    """Add an option for each kind of resource beside topics."""
    for kind in reversed(KINDS):
        command = click.option(kind.names.export_option, is_flag=True, help=kind.words.export_help)(command)
    return command


@click.command(
    "export",
    short_help="Write live topics as manifest files.",
    epilog="Example: topicledger export --cluster orders --to manifests/orders.yaml",
)
@click.option(
    "--topic",
    "patterns",
    cls=Renamed,
    former=["--pattern"],
    multiple=True,
    metavar="PATTERN",
    help="Only topics whose name matches this pattern (RE2); may be repeated.",
)
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="No topics whose name matches this pattern; may be repeated."
)
@click.option(
    "--to", type=click.Path(path_type=Path), metavar="PATH", help="A file (.yaml, .json), or a folder for many."
)
@click.option("--into-table", is_flag=True, help="Merge into the manifests table instead.")
@click.option("--with-assignments", is_flag=True, help="Write the brokers of each partition instead of counts.")
@click.option("--units", is_flag=True, help="Write configs with units (7d, 1GiB) instead of Kafka's plain numbers.")
@_with_resources
@click.option(
    "--owner",
    callback=named,
    metavar="NAME",
    help="The owner of all exported resources; default for topics: derived from owners, prefixes and groups.",
)
@click.option("--unmanaged", is_flag=True, help="Export only resources that no manifest names.")
@click.option("--split", type=click.Choice(["owner"]), help="With --to FOLDER: write a folder for each owner.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@common_with(without=("run_id",))
def export(options: Options, to: Path | None, into_table: bool, **given: Any) -> int:
    """Write the topics of live clusters as manifests: --cluster names them. Changes no cluster.

    --topic and --exclude select topics; other resources are exported completely.
    """
    if not options.cluster:
        raise UsageError("export needs --cluster, once for each cluster to export")
    if (to is None) != into_table:
        raise UsageError("export needs one of --to and --into-table")
    with interruptible():
        settings = open_settings(options)
        others = [each for each in KINDS if given.pop(f"with_{each.table.name}")]
        clusters, request = settings.select(options.cluster), ExportRequest(to=to, resources=others, **given)
        exporting.check(clusters, request)
        ledger = open_ledger(options, settings, "export", new=True)
        exported = exporting.export(ledger, settings, clusters, request)
    with display_only("the result", instead=f"the manifests are in {'the table' if to is None else to}"):
        print_result(exported.to_json(), lambda console: render_exported(exported, console), options)
    return exported.exit_code
