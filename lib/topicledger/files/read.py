"""Read manifest files into rows: report every error of every file, with its line, before anything else happens."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal, TextIO

from topicledger.config.ownership import not_yours_to_replace, owner_key
from topicledger.config.scope import TOPICS_IGNORED
from topicledger.config.settings import ChangeSettings, Owners, Settings
from topicledger.errors import ManifestFileError, UsageError
from topicledger.files import resource_rows
from topicledger.files.foreign.formats import FOREIGN_FORMATS
from topicledger.files.proposals import proposals
from topicledger.files.reading import NO_VARIABLES, STDIN_NAME, read_foreign_files, read_manifest_files
from topicledger.manifests import rows as manifests
from topicledger.manifests.file_rows import broken, line_of
from topicledger.manifests.files import (
    FileError,
    FileRow,
    Format,
    ManifestRow,
    NotCarriedOver,
    ParsedManifests,
)
from topicledger.manifests.files.report import MAX_ERRORS
from topicledger.manifests.files.results import texts_of
from topicledger.manifests.files.values import TEMPLATE_HINT, is_template, placeholder_hint, template_hint
from topicledger.manifests.row_rules import ROW_RULES
from topicledger.model.config_texts import refused_together
from topicledger.schemas import MANIFESTS
from topicledger.text import first_of, listed, nearest, show

LISTED_FILES = 1000
"""Largest number of files that the row in `runs` lists."""
REASON_CHARACTERS = 2_000
_WARNINGS_SHOWN = 20
_IGNORED = "ignored because of changes.ignore in the settings"
_OF_OTHERS = "an entry outside --owner: left out"
_MOST_FOUND = 20 * MAX_ERRORS
"""Largest number of errors, with repeated ones, that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Options for reading another tool's files."""

    form: str
    """A name in FOREIGN_FORMATS."""
    cluster: str | None = None
    """The cluster of all topics; None for the one that the files name."""


def read(
    settings: Settings,
    paths: Sequence[Path | Literal["-"]],
    stdin: TextIO,
    *,
    stdin_format: Format | None = None,
    foreign: Foreign | None = None,
    clusters: Collection[str] = (),
    strict: bool = False,
    variables: Mapping[str, str] = NO_VARIABLES,
    some: bool = False,
    digests: Collection[str] | None = None,
    owners: Collection[str] = (),
) -> ParsedManifests:
    """Read files without Spark; with `foreign`, files of another tool.

    `clusters`: only the rows of these clusters are checked and returned; empty for all. `strict`: warnings are errors.
    `variables`: values for variables in the files, by name; each must be in a file, unless these are only `some` files.
    `digests`: other files that can be read are left out, whatever is wrong with them; None for none.
    `owners`: what is wrong with other owners' rows is a warning, since the caller leaves these out; empty for all.
    Anything else that is wrong with a file is an error: an entry that can't be read may have any owner.

    Raises UsageError for options that do nothing, and ManifestFileError listing, with lines, every error of every file,
    and every row that a run would refuse by itself (C1, C3, A3, A4, Q2).
    """
    parsed = _parse(paths, stdin, stdin_format, foreign, variables, strict=strict)
    parsed = (parsed if digests is None else _of_digests(parsed, digests)).on(clusters)
    if foreign is not None:
        if FOREIGN_FORMATS[foreign.form].is_listing:
            parsed = _without_refused(_with_owners(parsed, settings.owners), settings)
        _leave_ignored(parsed, settings)
        parsed.not_carried_over.sort(key=lambda each: (each.file, each.line))
    own, others = (parsed, None) if not owners else _by_owners(parsed, owners)
    if foreign is None:
        parsed.warnings.extend(_ignored_configs(own.rows, settings))
        parsed.warnings.extend(_placeholders(own.every_row))
    hint = "; --cluster NAME puts the topics on another cluster" if foreign is not None else ""
    _require_none(
        chain(
            parsed.errors,
            parsed.warnings if strict else (),
            _wrong_rows(own, settings, hint, beside=parsed),
        ),
        warnings=() if strict else parsed.warnings,
    )
    if others is not None:
        parsed.warnings.extend(_as_warnings(others, settings))
    for name in () if some else sorted(set(variables) - set(parsed.variables)):
        raise UsageError(f"--var {name}: no file has ${{{name}}} in plain text; leave it out")
    return parsed


def _by_owners(parsed: ParsedManifests, owners: Collection[str]) -> tuple[ParsedManifests, ParsedManifests]:
    """Split into the rows of these owners and the others, and so the documents; one without an own row is another's."""
    keys = set(map(owner_key, owners))
    mine = parsed.only(lambda row: owner_key(row.owner or "") in keys)
    theirs = parsed.only(lambda row: owner_key(row.owner or "") not in keys)
    places = {(row.file, row.cluster) for row in mine.every_row}
    documents: dict[bool, dict[tuple[str, str], list[int | None]]] = {True: {}, False: {}}
    for place, lines in parsed.documents.items():
        documents[place in places][place] = lines
    return dataclasses.replace(mine, documents=documents[True]), dataclasses.replace(theirs, documents=documents[False])


def _wrong_rows(own: ParsedManifests, settings: Settings, hint: str, *, beside: ParsedManifests) -> Iterator[FileError]:
    """Yield what is wrong with `own` rows, also with one that differs from a row of the same resource in `beside`.

    `hint`: what to do about an unknown cluster, after its message.
    """
    return chain(
        _unknown_clusters(own, settings, hint),
        _repeated(beside.rows, own.rows),
        _row_errors(own.rows, settings),
        resource_rows.errors(own.resources, settings.scope, beside=beside.resources),
    )


def _as_warnings(others: ParsedManifests, settings: Settings) -> Iterator[FileError]:
    """Yield a warning for what is wrong with rows that are left out."""
    for each in islice(dict.fromkeys(_wrong_rows(others, settings, "", beside=others)), MAX_ERRORS):
        yield dataclasses.replace(each, message=f"{each.message} ({_OF_OTHERS})")


def _of_digests(parsed: ParsedManifests, digests: Collection[str]) -> ParsedManifests:
    """Leave out files with other digests. If reading ended with too many errors, files are missing: these stay."""
    others = {STDIN_NAME if name == "-" else name for name, of in parsed.digests.items() if of not in digests}
    if len(parsed.errors) >= MAX_ERRORS or not others:
        return parsed
    return dataclasses.replace(
        parsed.only(lambda row: row.file not in others),
        errors=[each for each in parsed.errors if each.file not in others],
        warnings=[each for each in parsed.warnings if each.file not in others],
        documents={place: lines for place, lines in parsed.documents.items() if place[0] not in others},
    )


def _with_owners(parsed: ParsedManifests, owners: Owners) -> ParsedManifests:
    """Give the topics of a listing, which has no owners, the only owner that the settings know, as `export` does."""
    if owners == Owners():
        return parsed
    known = proposals([(row.cluster, row.topic) for row in parsed.rows], (), owners, None)
    rows = [
        row if (found := known.get((row.cluster, row.topic))) is None else dataclasses.replace(row, owner=found.owner)
        for row in parsed.rows
    ]
    return dataclasses.replace(parsed, rows=rows)


def _without_refused(parsed: ParsedManifests, settings: Settings) -> ParsedManifests:
    """Leave out rows that can't be declared although a cluster has them: brokers accept what never applies (A3)."""
    topics = ((row, why) for row, _, why in _refused(parsed.rows, settings))
    others = ((row, why) for _, row, _, why in resource_rows.refused(parsed.resources, settings.scope))
    return parsed.without([*topics, *others])


def remarks(parsed: ParsedManifests) -> list[str]:
    """Return lines for the terminal: warnings, and entries of clusters that weren't asked for."""
    lines = _shown(parsed.warnings)
    for cluster, count in parsed.left_out.items():
        entries = "1 entry" if count == 1 else f"{count:,} entries"
        lines.append(f"left out by --cluster: {entries} of cluster {show(cluster)}")
    if parsed.left_out and not parsed.every_row:
        lines.append("the files have no entry of the clusters that --cluster names")
    return lines


def _shown(warnings: Sequence[FileError]) -> list[str]:
    """Return the first warnings, each one once a file."""
    places: dict[tuple[str, str], list[FileError]] = {}
    # One entry for several clusters has the same warning on each of them.
    for each in dict.fromkeys(warnings):
        places.setdefault((each.file, each.message), []).append(each)
    more = {True: "; other lines of the file, too", False: ""}
    lines = [f"warning: {each[0]}{more[len(each) > 1]}" for each in islice(places.values(), _WARNINGS_SHOWN)]
    if len(places) > _WARNINGS_SHOWN:
        lines.append(f"warnings: {first_of(_WARNINGS_SHOWN, len(places))}; --strict lists all")
    return lines


def files_arguments(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments about files for the row in `runs`; for very many files the first, their number and a digest.

    In: the name of each file as given, and the SHA-256 of its bytes.
    """
    files = [{"file": name, "sha256": digest} for name, digest in digests.items()]
    arguments = {"files": json.dumps(files[:LISTED_FILES])}
    if len(files) > LISTED_FILES:
        arguments["files_total"] = str(len(files))
        arguments["files_sha256"] = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    return arguments


def _require_none(found: Iterable[FileError], warnings: Sequence[FileError]) -> None:
    """Raise ManifestFileError if any error was found; it lists warnings, too."""
    # One entry for several clusters has the same error on each of them.
    errors = list(islice(dict.fromkeys(islice(found, _MOST_FOUND)), MAX_ERRORS + 1))
    if errors:
        messages = [
            str(error) for error in sorted(errors[:MAX_ERRORS], key=lambda error: (error.file, error.line or 0))
        ]
        total = "1 error" if len(messages) == 1 else f"{len(messages):,} errors"
        if len(errors) >= MAX_ERRORS:
            total = f"{MAX_ERRORS:,} errors or more, of which the first are listed"
        raise ManifestFileError("\n".join([*messages, *_shown(warnings), f"{total}: nothing was loaded or planned"]))


def _parse(
    paths: Sequence[Path | Literal["-"]],
    stdin: TextIO,
    stdin_format: Format | None,
    foreign: Foreign | None,
    variables: Mapping[str, str],
    *,
    strict: bool,
) -> ParsedManifests:
    if foreign is None:
        return read_manifest_files(paths, stdin, stdin_format=stdin_format, variables=variables)
    if variables:
        raise UsageError(f"--var is for native files; with --from {foreign.form} leave it out")
    if strict:
        raise UsageError(f"--strict is for native files; with --from {foreign.form} leave it out")
    if stdin_format is not None:
        raise UsageError(f"--stdin-format is for native files; with --from {foreign.form} leave it out")
    form = FOREIGN_FORMATS[foreign.form]
    if foreign.cluster is None and not form.names_cluster:
        raise UsageError(f"--from {form.name} needs --cluster NAME: its files don't name a cluster")
    return read_foreign_files(paths, stdin, form, cluster=foreign.cluster)


def _leave_ignored(parsed: ParsedManifests, settings: Settings) -> None:
    """List ignored configs (`changes.ignore`) as not carried over.

    Files of other tools may contain configs that these tools set temporarily.
    """
    for place, row, names in list(_with_ignored(parsed.rows, settings)):
        kept = {name: value for name, value in (row.configs or {}).items() if name not in names}
        parsed.rows[place] = dataclasses.replace(row, configs=kept or None)
        parsed.not_carried_over.extend(
            NotCarriedOver(file=row.file, line=row.line, key=f"{show(row.topic)}: {show(name)}", what=_IGNORED)
            for name in names
        )


def _ignored_configs(rows: Sequence[ManifestRow], settings: Settings) -> Iterator[FileError]:
    """Yield a warning for each ignored config, which stays in the table and is never set."""
    for _, row, names in _with_ignored(rows, settings):
        for name in names:
            message = f"topic {show(row.topic)}: {show(name)} is {_IGNORED}, and is never set"
            yield FileError(file=row.file, line=row.line, message=message)


def _placeholders(rows: Sequence[FileRow]) -> Iterator[FileError]:
    """Yield a warning for each text with a template's placeholder; it may be meant as it is."""
    for row in rows:
        for name, text in texts_of(row):
            if is_template(text):
                yield FileError(file=row.file, line=row.line, message=f"{name} {show(text)} {TEMPLATE_HINT}")


def _with_ignored(rows: Sequence[ManifestRow], settings: Settings) -> Iterator[tuple[int, ManifestRow, Sequence[str]]]:
    """Yield the rows with ignored configs: the row's place, the row, and the configs' names."""
    usual, ignored = ChangeSettings().ignore, settings.ignored_configs
    for place, row in enumerate(rows):
        if names := [name for name in row.configs or () if name in ignored.get(row.cluster, usual)]:
            yield place, row, names


def _unknown_clusters(parsed: ParsedManifests, settings: Settings, hint: str) -> Iterator[FileError]:
    # A document's cluster is wrong at one line, not at each of its entries; it may have none.
    of_documents = ((*place, line) for place, lines in parsed.documents.items() for line in lines)
    of_rows = ((row.file, row.cluster, row.line) for row in parsed.every_row)
    own = (each for each in of_rows if each[:2] not in parsed.documents)
    for file, cluster, line in chain(of_documents, own):
        if cluster in settings.clusters:
            continue
        message = f"unknown cluster `{show(cluster)}`; {nearest(cluster, settings.clusters)}{hint}"
        yield FileError(file=file, line=line, message=message + template_hint(cluster))


def _row_errors(rows: Sequence[ManifestRow], settings: Settings) -> Iterator[FileError]:
    """Yield the errors of rows: one for all topics with the same value of defaults or of a shared override.

    An error on some of an entry's clusters only, as by an override, names these.
    """
    found: dict[tuple[str, int, str, str], list[ManifestRow]] = {}
    for row, line, why in islice(_refused(rows, settings), _MOST_FOUND):
        own = row.topic if line == row.line else ""
        found.setdefault((row.file, line, own, why), []).append(row)
    of_entries = Counter((row.file, row.line, row.topic) for row in rows) if found else {}
    for (file, line, _, why), wrong in found.items():
        topics = [*dict.fromkeys(row.topic for row in wrong)]
        first = wrong[0]
        some = len(topics) == 1 and len(wrong) < of_entries[first.file, first.line, first.topic]
        where = f" on {listed([show(row.cluster) for row in wrong])}" if some else ""
        named = f"topic{'' if len(topics) == 1 else 's'} {listed([*map(show, topics)])}{where}"
        message = f"{named}: {show(why, REASON_CHARACTERS)}"
        message += placeholder_hint(texts_of(first), message)
        yield FileError(file=file, line=line, message=message)


def _refused(rows: Sequence[ManifestRow], settings: Settings) -> Iterator[tuple[ManifestRow, int, str]]:
    """Yield each row that a run would refuse by itself, or that the settings leave to others: its line, the reason."""
    yield from broken(rows, MANIFESTS, ROW_RULES)
    for row in rows:
        if row.configs and (reason := refused_together(row.configs)) is not None:
            yield row, line_of(row, reason), reason
    if settings.owners != Owners():
        asked = [(row.cluster, row.topic, row.replaces, row.owner) for row in rows]
        why = not_yours_to_replace(settings.owners, asked)
        yield from ((row, row.line, reason) for row, reason in zip(rows, why, strict=True) if reason is not None)
    for column, reason in TOPICS_IGNORED.items():
        named = [(row, name) for row in rows if (name := getattr(row, column)) is not None]
        ignored = settings.scope.ignored("ignore_topics", [name for _, name in named])
        yield from ((row, row.line, reason) for (row, _), one in zip(named, ignored, strict=True) if one)


def _repeated(rows: Sequence[ManifestRow], own: Sequence[ManifestRow]) -> Iterator[FileError]:
    """Yield an error for each row that differs from an earlier row of the same topic; equal copies are fine (C2).

    At least one of the two rows is among `own`.
    """
    first: dict[tuple[str, str], ManifestRow] = {}
    theirs = set(map(id, rows)) - set(map(id, own))
    for row in rows:
        earlier = first.setdefault((row.cluster, row.topic), row)
        if id(row) in theirs and id(earlier) in theirs:
            continue
        if any(getattr(row, name) != getattr(earlier, name) for name in manifests.COLUMNS):
            message = (
                f"topic {show(row.topic)} is declared differently at {earlier.file}:{earlier.line}; keep one of them"
            )
            yield FileError(file=row.file, line=row.line, message=message)
