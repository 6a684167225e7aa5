"""Versions of the declared tables at one moment, for a plan from earlier manifests."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from topicledger.ledger.tables import Ledger
from topicledger.schemas import MANIFESTS, Table
from topicledger.text import iso_time

log = logging.getLogger(__name__)


def versions_then(
    ledger: Ledger, version: int, tables: Sequence[Table], latest: Sequence[int], moment: datetime | None
) -> Sequence[int | None]:
    """Return the version of each of `tables` at `moment`. `latest`: their latest versions.

    Without `moment`: at the last moment when `manifests` was at `version`. None if the table didn't exist then: the
    plan leaves out its resources, with a warning. Raises UsageError if a version of that moment can no longer be read.
    """
    at = moment if moment is not None else ledger.last_moment(MANIFESTS, version)
    if at is None:
        return latest
    return [_version_at(ledger, each, at, most) for each, most in zip(tables, latest, strict=True)]


def _version_at(ledger: Ledger, table: Table, at: datetime, latest: int) -> int | None:
    version = ledger.version_at(table, at)
    if version is None:
        log.warning("there was no table %s at %s: the plan leaves out its resources", table.name, iso_time(at))
    else:
        ledger.require_version(table, version, latest=latest)
    return version


def version_argument(table: Table) -> str:
    """Return the argument's key for the version of one of `schemas.RESOURCES`; left out if there is no such table."""
    return f"{table.name}_version"


def latest_argument(table: Table) -> str:
    """Return the argument's key for the latest version of a table, if the run is planned from an earlier one."""
    return f"latest_{table.name}_version"
