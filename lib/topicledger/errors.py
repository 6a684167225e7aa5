"""The errors a user can meet: each says what happened, where, and what to do, and has an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """Process exit codes, the same for every command."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    CHANGES_PENDING = 3
    TOPICS_FAILED = 4
    GUARD_STOPPED = 5


_STRONGEST_FIRST = (ExitCode.ERROR, ExitCode.GUARD_STOPPED, ExitCode.TOPICS_FAILED, ExitCode.CHANGES_PENDING)


def exit_code(holds: Mapping[ExitCode, bool]) -> ExitCode:
    """Return the most severe exit code that holds: error, guard, failed topics, pending changes; else done."""
    return next((code for code in _STRONGEST_FIRST if holds.get(code, False)), ExitCode.DONE)


def most_severe(*codes: int) -> ExitCode:
    """Return the most severe of these exit codes."""
    return exit_code({ExitCode(code): True for code in codes})


class TopicLedgerError(Exception):
    """An error that ends a run; the user sees its text unchanged, without a stack trace."""

    exit_code = ExitCode.ERROR
    run_id: str | None = None
    """The run that the error ended, if there was one."""
    details: Mapping[str, object] = {}
    """Fields to add to the result document, beside the error's text."""

    def of_run(self, run_id: str) -> Self:
        """Note the run that the error ended."""
        self.run_id = run_id
        return self

    def with_details(self, details: Mapping[str, object]) -> Self:
        """Note fields for the result document."""
        self.details = details
        return self


class UsageError(TopicLedgerError):
    """The command makes no sense as given: nothing was read or sent."""

    exit_code = ExitCode.USAGE


class GuardStopped(TopicLedgerError):
    """A guard stopped the run as a whole: nothing was sent."""

    exit_code = ExitCode.GUARD_STOPPED


class SettingsError(UsageError):
    """The run settings are missing, unreadable or wrong; names the file and the key."""


class PolicyError(UsageError):
    """A user-defined policy fails or breaks its contract; names the policy. Nothing was sent."""


class ManifestFileError(UsageError):
    """Manifest files that can't be loaded; lists every error of every file."""


class TableError(TopicLedgerError):
    """A Delta table is missing, unreachable or differs from its schema; names the table."""


class ClusterError(TopicLedgerError):
    """A cluster can't be reached or does not answer; names the cluster and its bootstrap servers."""


class SecretError(ClusterError):
    """A secret of a cluster's client is missing; names the reference, never the value."""
