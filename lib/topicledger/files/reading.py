"""Find the files that paths stand for, read their bytes and pass the text to the parser of its format.

This is the only module of the package that reads the file system or standard input. The job may be able to read more
than the authors of the files may, so a link to a file outside the folder is an error, and so is anything but a regular
file.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, TextIO

from topicledger.files.csv_files import read_csv
from topicledger.files.foreign.contract import ForeignFormat, Source
from topicledger.files.foreign.formats import FOREIGN_FORMATS
from topicledger.files.json_files import read_json
from topicledger.files.yaml_files import read_yaml
from topicledger.manifests.files.report import Report, TooManyErrorsError
from topicledger.manifests.files.results import FileError, Format, ParsedManifests
from topicledger.manifests.files.values import TEMPLATE_HINT
from topicledger.manifests.files.variables import Variables

MAX_BYTES = 256 * 1024 * 1024
"""Limit for all files of a load together; enough for more than a million topics."""
_PIECE = 1024 * 1024
STDIN_NAME = "stdin"
"""File name in rows and errors from `-`."""

NO_VARIABLES: Mapping[str, str] = {}

_FORMATS: Mapping[str, Format] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
}


def read_manifest_files(
    paths: Sequence[Path | Literal["-"]],
    stdin: TextIO,
    *,
    stdin_format: Format | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> ParsedManifests:
    """Read files, folders (recursively, sorted, without hidden names) and `-`; never raises because of their content.

    A file that is named twice is read once. ``stdin_format`` is the format of `-`; by default JSON if it begins with [
    or {, else YAML. ``variables``: values by name.
    """
    result = ParsedManifests(rows=[], errors=[])
    with suppress(TooManyErrorsError):
        for suffix, text, report in _texts(paths, stdin, tuple(_FORMATS), result, any_suffix=False):
            form = stdin_format if suffix is None else _FORMATS[suffix]
            if form is None:
                form = "json" if text.lstrip()[:1] in ("[", "{") else "yaml"
            report.variables = Variables(variables)
            with _named_as_foreign(text, report, result):
                {"csv": read_csv, "json": read_json, "yaml": read_yaml}[form](text, report)
            if report.variables.used:
                _add_to_digest(result, "-" if suffix is None else report.file, report.variables)
    return result


@contextmanager
def _named_as_foreign(text: str, report: Report, result: ParsedManifests) -> Iterator[None]:
    """Context in which the errors of a file that has the sign of another tool's format become a hint at `--from`.

    A template must be rendered first, for any tool: these errors stay.
    """
    before = len(result.errors)
    too_many = None
    try:
        yield
    except TooManyErrorsError as error:
        too_many = error
    found = result.errors[before:]
    form = next((each for each in FOREIGN_FORMATS.values() if found and each.sign.search(text)), None)
    if form is not None:
        message = f"is in the format {form.name}: `load-manifests --from {form.name}` reads it"
        templates = [each for each in found if TEMPLATE_HINT in each.message]
        result.errors[before:] = [FileError(report.file, None, message), *templates]
    elif too_many is not None:
        raise too_many


def _add_to_digest(result: ParsedManifests, name: str, variables: Variables) -> None:
    """Add the values of variables to a file's digest, so that other values make it another file."""
    used = {each: variables.values[each] for each in sorted(variables.used)}
    result.variables.update(used)
    result.digests[name] = hashlib.sha256(f"{result.digests[name]}{json.dumps(used)}".encode()).hexdigest()


def read_foreign_files(
    paths: Sequence[Path | Literal["-"]], stdin: TextIO, form: ForeignFormat, *, cluster: str | None
) -> ParsedManifests:
    """Read another tool's files the same way: files of any name, and in folders those with a suffix of ``form``.

    ``cluster`` overrides the cluster of all topics; None for the cluster that the files name.
    """
    result = ParsedManifests(rows=[], errors=[])
    found = _texts(paths, stdin, form.suffixes, result, any_suffix=True)
    with suppress(TooManyErrorsError):
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
    """Yield the suffix (None for `-`), the text and the report of each readable file."""
    seen: set[str] = set()
    left = MAX_BYTES
    for path in paths:
        is_stdin = str(path) == "-"
        files, folder = ([Path("-")], None) if is_stdin else _files_of(Path(path), suffixes, result)
        for file in files:
            report = Report(STDIN_NAME if is_stdin else str(file), result)
            try:
                real = "-" if is_stdin else os.path.realpath(file)
                if real in seen:
                    continue
                seen.add(real)
                if is_stdin:
                    content = _read_stdin(stdin, left)
                else:
                    content = _read_file(file, folder, None if any_suffix else suffixes, left)
                left -= len(content)
                if left < 0:
                    report.error(None, f"too large: a load reads at most {MAX_BYTES // 1024**2} MiB of all its files")
                    return
                result.digests[str(file)] = hashlib.sha256(content).hexdigest()
                if _is_utf16(content):
                    raise _NotReadError("is UTF-16 or UTF-32; save it as UTF-8")
                text = content.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                report.error(error.object.count(b"\n", 0, error.start) + 1, "not UTF-8")
            except FileNotFoundError:
                report.error(None, "no such file or folder")
            except _NotReadError as error:
                report.error(None, str(error))
            except (OSError, ValueError) as error:
                report.error(None, f"can't be read: {getattr(error, 'strerror', None) or error}")
            else:
                yield None if is_stdin else file.suffix.lower(), text, report


_WITH_FROM = "; `load-manifests --from FORMAT` reads other tools' files"


def _is_utf16(content: bytes) -> bool:
    """Return whether a file is UTF-16 or UTF-32: by its mark, or since one of its first bytes is zero, as of ASCII."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
    return content.startswith(marks) or content[:2].count(0) == 1 or content[:4].count(0) == 3


class _NotReadError(Exception):
    """A file must not be read; str() is the reason."""


_BROKEN = "is a link to nothing: restore what it points to, or remove the link"
_LEAVES = "is a link that leaves its folder: put the file itself there, or name what the link points to"


def _files_of(path: Path, suffixes: Sequence[str], result: ParsedManifests) -> tuple[Sequence[Path], Path | None]:
    """Return the manifest files that a path stands for, and the folder's real path, or None if the path is a file."""
    if any(_leaves(each, each.parent) for each in _links_named_in(path)):
        result.errors.append(FileError(str(path), None, _LEAVES))
        return [], None
    try:
        is_folder = path.is_dir()
    except OSError:
        is_folder = False  # a parent folder isn't accessible; reading the file will report it
    if not is_folder:
        return [path], None

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
        for name in [name for name in folders if _leaves(Path(folder, name), path)]:
            folders.remove(name)
            result.errors.append(FileError(str(Path(folder, name)), None, _LEAVES))
        shown = [Path(folder, name) for name in files if not name.startswith(".")]
        # A link to nothing may stand for a folder that isn't there, and so for files. Whether a path outside the folder
        # exists is nobody's business.
        broken = {each for each in shown if os.path.islink(each) and not os.path.exists(each)}  # noqa: PTH110, PTH114
        for each in sorted(broken):
            result.errors.append(FileError(str(each), None, _LEAVES if _leaves(each, path) else _BROKEN))
        found += [each for each in shown if each not in broken and each.suffix.lower() in suffixes]
    if not found and len(result.errors) == errors_before:
        result.errors.append(FileError(str(path), None, f"no manifest files in this folder ({', '.join(suffixes)})"))
    return sorted(found), Path(os.path.realpath(path))


def _links_named_in(path: Path) -> Iterator[Path]:
    """Yield the links in a path that may come with the files: any part of a relative path, or the last part."""
    try:
        yield from (each for each in (path, *(() if path.is_absolute() else path.parents)) if each.is_symlink())
    except (OSError, ValueError):
        return  # reading the file will report it


def _leaves(path: Path, folder: Path) -> bool:
    """Whether a path, with links followed, leads out of a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _read_file(path: Path, folder: Path | None, suffixes: Sequence[str] | None, left: int) -> bytes:
    """Return at most ``left`` + 1 bytes of a file; raises OSError and _NotReadError.

    ``folder``: the real path of the folder in which it was found.
    """
    real = os.path.realpath(path)
    if folder is not None and not Path(real).is_relative_to(folder):
        raise _NotReadError(_LEAVES)
    # Checked before opening, which would wait for the writer of a FIFO, or rewind a tape.
    _require_regular(os.stat(real))  # noqa: PTH116
    with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123
        _require_regular(os.fstat(file.fileno()))
        if suffixes is not None and path.suffix.lower() not in suffixes:
            raise _NotReadError(f"unknown kind of file; its name must end in {', '.join(suffixes)}{_WITH_FROM}")
        return _read(file, left)


def _read(file: BinaryIO, left: int) -> bytes:
    content = bytearray()
    # Read in pieces: a file may be longer than its reported size, and one large read takes that much memory.
    while len(content) <= left and (piece := file.read(_PIECE)):
        content += piece
    return bytes(content)


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _NotReadError("is not a regular file; to read from a pipe, use `-`")


def _read_stdin(stdin: TextIO, left: int) -> bytes:
    # Reads bytes if possible, since the terminal's encoding is unrelated to a manifest's.
    buffer: BinaryIO | None = getattr(stdin, "buffer", None)
    return stdin.read(left + 1).encode("utf-8") if buffer is None else _read(buffer, left)
