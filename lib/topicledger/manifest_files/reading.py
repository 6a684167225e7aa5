"""Finds the files that paths stand for, reads their bytes and hands the text to the parser of its format.

The only module of the package that touches the file system or standard input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TextIO

from topicledger.manifest_files.csv_files import read_csv
from topicledger.manifest_files.entries import Report
from topicledger.manifest_files.json_files import read_json
from topicledger.manifest_files.results import FileError, Format, ParsedManifests
from topicledger.manifest_files.yaml_files import read_yaml

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
    seen: set[str] = set()
    for path in paths:
        if str(path) == "-":
            if "-" in seen:
                continue
            seen.add("-")
            _read_stdin(stdin, stdin_format, result)
            continue
        for file in _files_of(Path(path), result):
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                _read_file(file, result)
    return result


def _files_of(path: Path, result: ParsedManifests) -> list[Path]:
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
            Path(folder, name) for name in files if not name.startswith(".") and Path(name).suffix.lower() in _FORMATS
        ]
    if not found and len(result.errors) == errors_before:
        result.errors.append(FileError(str(path), None, f"no manifest files in this folder ({', '.join(_FORMATS)})"))
    return sorted(found)


def _read_file(path: Path, result: ParsedManifests) -> None:
    report = Report(str(path), result)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        report.error(None, "no such file or folder")
        return
    except (OSError, ValueError) as error:
        report.error(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
        return
    form = _FORMATS.get(path.suffix.lower())
    if form is None:
        report.error(None, f"unknown kind of file; its name must end in {', '.join(_FORMATS)}")
        return
    _read_bytes(content, form, report)


def _read_stdin(stdin: TextIO, form: Format | None, result: ParsedManifests) -> None:
    report = Report(STDIN_NAME, result)
    # the bytes, where there are any, since the terminal's encoding says nothing about a manifest
    buffer = getattr(stdin, "buffer", None)
    try:
        content = buffer.read() if buffer is not None else stdin.read().encode("utf-8")
    except (OSError, ValueError) as error:
        report.error(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
        return
    _read_bytes(content, form, report)


def _read_bytes(content: bytes, form: Format | None, report: Report) -> None:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        report.error(content.count(b"\n", 0, error.start) + 1, "not UTF-8")
        return
    if form is None:
        form = "json" if text.lstrip()[:1] in ("[", "{") else "yaml"
    {"csv": read_csv, "json": read_json, "yaml": read_yaml}[form](text, report)
