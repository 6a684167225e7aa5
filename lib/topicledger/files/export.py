"""Export live clusters as manifests, to adopt existing topics. Changes no cluster."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.config import ownership, patterns
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.files import export_resources
from topicledger.files.changes import adopt
from topicledger.files.exported import ClusterExport, Exported, ExportRequest, TopicMessage, top_notes
from topicledger.files.exported_rows import GROUP, NOTE, REASON, TableExport
from topicledger.files.load import Loaded, of_counts
from topicledger.files.writing import SUFFIXES, write_manifests
from topicledger.ledger.tables import Ledger
from topicledger.ledger.versions import latest_if_exists
from topicledger.manifests.owners import owner_key
from topicledger.resources.topics.files import export_topics
from topicledger.schemas import MANIFESTS
from topicledger.text import SHOWN_FAILURES, listed, show

log = logging.getLogger(__name__)

_UNOWNED = "unowned"
"""The folder for what has no owner."""
Rows: TypeAlias = Iterable[Mapping[str, Any]]
_MOST_FOLDER = 200
"""Longest name of a folder, in characters; file systems accept 255 bytes."""


def check(clusters: Sequence[ClusterSettings], request: ExportRequest) -> None:
    """Raise the UsageErrors of `export` before a Spark session is started."""
    _files(clusters, request)
    for pattern in (*request.patterns, *request.exclude):
        try:
            patterns.check(pattern)
        except ValueError as error:
            raise UsageError(str(error)) from None


def export(ledger: Ledger, settings: Settings, clusters: Sequence[ClusterSettings], request: ExportRequest) -> Exported:
    """Observe clusters and write their resources to files, or into their tables in one commit for each table.

    Raises UsageError for an invalid pattern, and for files that already exist.
    """
    check(clusters, request)
    files = _files(clusters, request)
    # One version of each table: what others load meanwhile is neither compared nor overwritten.
    known = (MANIFESTS, *(kind.table for kind in request.resources))
    declared = {each.name: ledger.read_at(each, latest_if_exists(ledger, each)) for each in known}
    topics = export_topics.export(ledger, settings, clusters, request, declared[MANIFESTS.name])
    reached = [cluster for cluster in clusters if cluster.name in topics.ids]
    others = [
        export_resources.export(ledger, each, reached, settings, topics.ids, request, declared[each.table.name])
        for each in request.resources
    ]
    # A file without a requested kind would claim that the cluster has no such resources.
    unlisted = {name for each in others for name in each.problems}
    tables = [topics.found.without(unlisted), *others]
    problems = [*topics.unreached, *(problem for each in tables for problem in each.problems.values())]
    names = [name for name in topics.ids if all(name not in each.problems for each in tables)]
    left_out = [message for each in tables for message in each.messages(REASON)]
    notes = [*topics.unread, *(message for each in tables for message in each.messages(NOTE))]
    loaded: Loaded | None = None
    if request.to is None:
        counts = {each.table.name: each.counts() for each in tables}
        left = {cluster.name for cluster in clusters}.difference(names)
        loaded = _merge(ledger, [each.without(left) for each in tables], request, declared) if names else None
        done = [
            _of_cluster(name, {table: found.get(name, 0) for table, found in counts.items()}, None) for name in names
        ]
    else:
        head = [*left_out, *topics.unread]
        done = [each for name in names for each in _write(files[name], name, tables, head, request)]
        _name_left([files[name] for name in names], done, request)
    return Exported(clusters=done, not_exported=left_out, notes=notes, loaded=loaded, problems=problems)


def _merge(
    ledger: Ledger, tables: Sequence[TableExport], request: ExportRequest, declared: Mapping[str, DataFrame]
) -> Loaded:
    counts = {
        each.table.name: adopt(ledger, each.table, each.exported, request.owner, declared[each.table.name])
        for each in tables
    }
    return replace(of_counts(counts.pop(MANIFESTS.name)), resources=counts)


def _of_cluster(cluster: str, counts: Mapping[str, int], file: Path | None) -> ClusterExport:
    """Return the result for a cluster with this number of rows by table."""
    others = {table: count for table, count in counts.items() if table != MANIFESTS.name}
    topics = counts[MANIFESTS.name]
    return ClusterExport(cluster=cluster, topics=topics, file=None if file is None else str(file), resources=others)


def _files(clusters: Sequence[ClusterSettings], request: ExportRequest) -> dict[str, Path]:
    """Return each cluster's file; if split by owner, the file for what has no owner.

    Raises UsageError if the destination doesn't fit the request or can't be created.
    """
    to = request.to
    if to is None:
        if request.split is not None:
            raise UsageError(f"--split {request.split} needs --to, a folder")
        if request.units:
            raise UsageError("--units is for files; the table has plain numbers: leave it out with --into-table")
        if request.overwrite:
            raise UsageError("--overwrite is for files: leave it out with --into-table")
        return {}
    if to.suffix and not to.is_dir():
        if to.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"--to {to}: a file name must end in {', '.join(SUFFIXES)}, and the name of a new folder has no dot"
            )
        if request.split is not None:
            raise UsageError(f"--to {to}: --split {request.split} needs a folder")
        if len(clusters) > 1:
            raise UsageError(f"--to {to}: several clusters need a folder, which gets a file for each")
        files = {clusters[0].name: to}
    else:
        folder = to if request.split is None else to / _UNOWNED
        # A cluster's name may be anything that TOML can write.
        files = {cluster.name: folder / f"{_quoted(cluster.name)}.yaml" for cluster in clusters}
    there = [str(file) for name in files.values() for file in _there(name, request)]
    if there and not request.overwrite:
        named = listed(there, most=SHOWN_FAILURES)
        raise UsageError(f"{named} already exists: choose another destination, or add --overwrite")
    try:
        for file in files.values():
            (to if request.split is not None else file.parent).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--to {to}: {error.strerror}: {error.filename}") from None
    return files


def _there(file: Path, request: ExportRequest) -> Sequence[Path]:
    """Return the existing files that an export of this cluster may replace."""
    if request.split is None:
        return [file] if file.exists() else []
    return sorted(each / file.name for each in file.parent.parent.glob("*") if (each / file.name).exists())


def _name_left(files: Sequence[Path], done: Sequence[ClusterExport], request: ExportRequest) -> None:
    """Log the files of owners that have nothing any more: loaded, they would declare again what is gone or moved."""
    if request.patterns or request.exclude or request.unmanaged:
        return
    written = {each.file for each in done}
    left = [str(each) for file in files for each in _there(file, request) if str(each) not in written]
    if left:
        log.warning("files of owners without anything, left as they were: %s", listed(left, most=SHOWN_FAILURES))


def _write(
    file: Path, cluster: str, tables: Sequence[TableExport], messages: Sequence[TopicMessage], request: ExportRequest
) -> Iterator[ClusterExport]:
    """Write a cluster's file, or with `split` one file for each owner.

    Raises TopicLedgerError if a file can't be written.
    """
    notes = top_notes(messages, cluster)
    write = partial(_write_file, cluster=cluster, units=request.units)
    if request.split is None:
        yield write(file, {each.table.name: each.entries(cluster) for each in tables}, notes)
        return

    def of_owner(owner: str | None) -> Path:
        return file if owner is None else file.parent.with_name(_folder(owner)) / file.name

    # The file of what has no owner, or of the only owner, has a section for each requested kind, and the notes.
    home, written = None if request.owner is None else ownership.owner_key(request.owner), set[str | None]()
    every: Mapping[str, Rows] = {each.table.name: () for each in tables}
    for owner, rows in _by_owner(tables, cluster):
        written.add(owner)
        is_home = owner == home
        yield write(of_owner(owner), {**(every if is_home else {MANIFESTS.name: ()}), **rows}, notes if is_home else ())
    if home not in written and (not written or notes or len(tables) > 1):
        yield write(of_owner(home), every, notes)


def _by_owner(tables: Sequence[TableExport], cluster: str) -> Iterator[tuple[str | None, Mapping[str, Rows]]]:
    """Yield each owner's rows by table, first those without an owner; they must be read before the next owner's."""
    groups = {
        each.table.name: groupby(each.entries(cluster, by=owner_key(F.col("owner"))), key=itemgetter(GROUP))
        for each in tables
    }
    heads = {name: next(those, None) for name, those in groups.items()}
    while found := {name: head for name, head in heads.items() if head is not None}:
        owner = min((owner for owner, _ in found.values()), key=lambda owner: (owner is not None, owner or ""))
        its = {name: rows for name, (of, rows) in found.items() if of == owner}
        yield owner, its
        heads |= {name: next(groups[name], None) for name in its}


def _quoted(name: str) -> str:
    """Return the name of a file or folder for any text; loads leave out hidden ones, so none begins with a dot."""
    quoted = quote(name, safe=" ")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def _folder(owner: str) -> str:
    """Return a folder name for an owner's normalised name, which may be any text."""
    name = _quoted(owner)
    if name == _UNOWNED:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > _MOST_FOLDER:
        name = f"{name[: _MOST_FOLDER - 17]}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
    return name


def _write_file(
    file: Path,
    rows: Mapping[str, Rows],
    notes: Sequence[str],
    *,
    cluster: str,
    units: bool,
) -> ClusterExport:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        counts = write_manifests(file, cluster, rows, notes, units=units)
    except OSError as error:
        raise TopicLedgerError(f"can't write {show(str(file))}: {error.strerror}") from error
    return _of_cluster(cluster, counts, file)
