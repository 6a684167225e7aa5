"""YAML manifests: documents of `topics` and other resources, which inherit a `cluster` and `defaults`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from topicledger.files.documents import read_document
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.report import Report, TooMuchError
from topicledger.manifests.files.values import Value
from topicledger.manifests.files.yaml_values import YamlDocuments, parse_yaml

_MAX_ALIASED = 5_000_000
"""Number of values that aliases, merge keys, clusters, defaults and shorthands may add to those in a YAML file."""


def read_yaml(text: str, report: Report) -> None:
    """Report the rows and errors of all documents of a YAML manifest."""
    with measured(report):
        documents, reader = open_yaml(text, report)
        for value, line in documents:
            read_document(value, line, reader)


def open_yaml(text: str, report: Report) -> tuple[list[tuple[Value, int]], Reader]:
    """Return the documents of a file with their lines, and a reader of their values; raises TooMuchError."""
    source = YamlDocuments(text, max_aliased=_MAX_ALIASED, variables=report.variables)
    documents: list[tuple[Value, int]] = []
    parse_yaml(source, documents, report)
    # Four times, since a million topics may have a dozen default configs each.
    report.visits = 4 * source.written + _MAX_ALIASED
    return documents, Reader(report)


@contextmanager
def measured(report: Report) -> Iterator[None]:
    """Report a file that has or expands to too many values, instead of raising TooMuchError."""
    try:
        yield
    except TooMuchError as error:
        making = "aliases, merge keys, clusters, defaults and shorthands"
        report.error(None, str(error) or f"its {making} expand to more than {_MAX_ALIASED:,} values")
