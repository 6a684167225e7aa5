"""`report`: one HTML file about a run, an audit, a span of time or the estate, for people."""

from __future__ import annotations

import os
from pathlib import Path

from topicledger import atomic
from topicledger.errors import TopicLedgerError, UsageError
from topicledger.report.estate import Estate, render_estate
from topicledger.report.facts import Report, ReportKind
from topicledger.report.gather import gather
from topicledger.report.index import FILE as INDEX_FILE
from topicledger.report.index import entries, make_folder
from topicledger.report.index import render as render_index
from topicledger.report.limits import limited
from topicledger.report.page import render
from topicledger.report.scope import ReportScope, moment, of_run, span

__all__ = [
    "INDEX_FILE",
    "Estate",
    "Report",
    "ReportKind",
    "ReportScope",
    "entries",
    "gather",
    "limited",
    "make_folder",
    "moment",
    "of_run",
    "render",
    "render_estate",
    "render_index",
    "require_writable",
    "span",
    "write",
]


def require_writable(path: Path, option: str = "--to") -> None:
    """Check that a page can be written to `path`, before anything is read for it; raises UsageError if not."""
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder: name the HTML file")
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} for {option} {path}: create it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option} {path}: folder {folder} can't be written to")


def write(path: Path, page: str) -> None:
    """Write the page atomically; raises TopicLedgerError, and keeps an earlier file unchanged, if that fails."""
    try:
        atomic.write(path, [page])
    except OSError as error:
        raise TopicLedgerError(f"the report can't be written to {path}: {error.strerror}") from None
