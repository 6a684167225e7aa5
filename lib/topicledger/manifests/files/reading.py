"""Finds the files that paths stand for, reads their bytes and hands the text to the parser of its format.

The only module of the package that touches the file system or standard input.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TextIO

from topicledger.manifests.files.csv_files import read_csv
from topicledger.manifests.files.entries import Report
from topicledger.manifests.files.foreign.contract import ForeignFormat, Source
from topicledger.manifests.files.json_files import read_json
from topicledger.manifests.files.results import FileError, Format, ParsedManifests
from topicledger.manifests.files.yaml_files import read_yaml

STDIN_NAME = "stdin"
"""What rows and errors from `-` carry as their file."""

_FORMATS: Mapping[str, Format] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
}


def read_manifest_files(
    paths: Sequence[Path | Literal["-"]], stdin: TextIO, *, stdin_format: Format | None = None
) -> ParsedManifests:
    """Read files, folders (recursively, sorted, hidden names skipped) and `-`; never raises for what they contain.

    A file met twice is read once. ``stdin_format`` says what `-` holds; without it, JSON if it begins with [ or {,
    else YAML.
    """
    result = ParsedManifests(rows=[], errors=[])
    for suffix, text, report in _texts(paths, stdin, tuple(_FORMATS), result, any_suffix=False):
        form = stdin_format if suffix is None else _FORMATS[suffix]
        if form is None:
            form = "json" if text.lstrip()[:1] in ("[", "{") else "yaml"
        {"csv": read_csv, "json": read_json, "yaml": read_yaml}[form](text, report)
    return result


def read_foreign_files(
    paths: Sequence[Path | Literal["-"]], stdin: TextIO, form: ForeignFormat, *, cluster: str | None
) -> ParsedManifests:
    """Read another tool's files the same way: of folders those with a suffix of ``form``, else files of any name.

    ``cluster`` is the cluster of all topics, whatever the files say; None: the one that the files name.
    """
    result = ParsedManifests(rows=[], errors=[])
    found = _texts(paths, stdin, form.suffixes, result, any_suffix=True)
    form.read([Source(text=text, report=report) for _, text, report in found], cluster)
    return result


def _texts(
    paths: Sequence[Path | Literal["-"]],
    stdin: TextIO,
    suffixes: Sequence[str],
    result: ParsedManifests,
    *,
    any_suffix: bool,
) -> Iterator[tuple[str | None, str, Report]]:
    """The suffix (None of `-`), the text and the report of each file that can be read."""
    seen: set[str] = set()
    for path in paths:
        if str(path) == "-":
            if "-" not in seen:
                seen.add("-")
                report = Report(STDIN_NAME, result)
                content = _read_stdin(stdin, report)
                _keep_digest("-", content, result)
                text = _decode(content, report)
                if text is not None:
                    yield None, text, report
            continue
        for file in _files_of(Path(path), suffixes, result):
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                report = Report(str(file), result)
                content = _read_file(file, None if any_suffix else suffixes, report)
                _keep_digest(str(file), content, result)
                text = _decode(content, report)
                if text is not None:
                    yield file.suffix.lower(), text, report


def _files_of(path: Path, suffixes: Sequence[str], result: ParsedManifests) -> list[Path]:
    """The manifest files that a path stands for."""
    try:
        is_folder = path.is_dir()
    except OSError:
        is_folder = False  # a folder above it is closed: reading it tells
    if not is_folder:
        return [path]

    def unreadable(error: OSError) -> None:
        result.errors.append(FileError(str(error.filename), None, f"can't be read: {error.strerror}"))

    found: list[Path] = []
    visited: set[str] = set()
    errors_before = len(result.errors)
    for folder, folders, files in os.walk(path, onerror=unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:  # a link that leads back
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [
            Path(folder, name) for name in files if not name.startswith(".") and Path(name).suffix.lower() in suffixes
        ]
    if not found and len(result.errors) == errors_before:
        result.errors.append(FileError(str(path), None, f"no manifest files in this folder ({', '.join(suffixes)})"))
    return sorted(found)


def _read_file(path: Path, suffixes: Sequence[str] | None, report: Report) -> bytes | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        report.error(None, "no such file or folder")
        return None
    except (OSError, ValueError) as error:
        report.error(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
        return None
    if suffixes is not None and path.suffix.lower() not in suffixes:
        report.error(None, f"unknown kind of file; its name must end in {', '.join(suffixes)}")
        return None
    return content


def _read_stdin(stdin: TextIO, report: Report) -> bytes | None:
    # the bytes, where there are any, since the terminal's encoding says nothing about a manifest
    buffer = getattr(stdin, "buffer", None)
    try:
        content: bytes = buffer.read() if buffer is not None else stdin.read().encode("utf-8")
    except (OSError, ValueError) as error:
        report.error(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
        return None
    return content


def _keep_digest(name: str, content: bytes | None, result: ParsedManifests) -> None:
    if content is not None:
        result.digests[name] = hashlib.sha256(content).hexdigest()


def _decode(content: bytes | None, report: Report) -> str | None:
    if content is None:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        report.error(content.count(b"\n", 0, error.start) + 1, "not UTF-8")
        return None
