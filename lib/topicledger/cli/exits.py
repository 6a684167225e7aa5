"""Descriptions of the exit codes of each command, for docs/errors.md."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.errors import ExitCode

OF_EVERY_COMMAND: Mapping[ExitCode, str] = {
    ExitCode.DONE: "Done, or nothing to do.",
    ExitCode.ERROR: "An error, or not finished. A run continues if you start it again with the same run id; a load "
    "needs a new id.",
    ExitCode.USAGE: "Usage error: the command, the settings, the manifest files or a plan of files don't fit. "
    "Nothing was done.",
}

_PENDING = "With `--detailed-exitcode`: changes are pending, and nothing was refused or failed."
_FAILED = "Some actions were refused or failed. The others are not affected."
_GUARD = "A guard stopped something, or what acts like one"
_OTHER_CLUSTER = "The addresses lead to a different cluster than the settings or `clusters` say."
_PLAN = {
    ExitCode.CHANGES_PENDING: _PENDING,
    ExitCode.TOPICS_FAILED: _FAILED,
    ExitCode.GUARD_STOPPED: f"{_GUARD}.",
}

OF_COMMANDS: Mapping[str, Mapping[ExitCode, str]] = {
    "load-manifests": {
        ExitCode.GUARD_STOPPED: "More rows would be removed than guards.max_removed_rows: nothing was loaded."
    },
    "plan": {
        **_PLAN,
        ExitCode.GUARD_STOPPED: f"{_GUARD}; or loading the files would remove too many rows.",
    },
    "apply": {
        ExitCode.TOPICS_FAILED: _FAILED,
        ExitCode.GUARD_STOPPED: f"{_GUARD}: the rest, if any, was applied. Or an approval is missing, or the plan is "
        "too old: nothing more was sent.",
    },
    "provision": {
        ExitCode.TOPICS_FAILED: _FAILED,
        ExitCode.GUARD_STOPPED: f"{_GUARD}; or an approval is missing.",
    },
    "prune": _PLAN,
    "rebalance": _PLAN,
    "runs revert": _PLAN,
    "drift": {ExitCode.CHANGES_PENDING: "With `--fail-on` or `--detailed-exitcode`: there is drift."},
    "export": {ExitCode.TOPICS_FAILED: "Some resources were not exported."},
    "runs approve": {ExitCode.GUARD_STOPPED: "The plan is older than guards.max_plan_age, or not that of `--plan`."},
    "runs verify": {
        ExitCode.CHANGES_PENDING: "With a key: runs have rows that no digest covers.",
        ExitCode.TOPICS_FAILED: "Rows were changed after their run ended.",
    },
    "clusters accept": {
        ExitCode.GUARD_STOPPED: "The addresses lead to a cluster other than `cluster_id` in the settings, or to one "
        "that another name stands for. Nothing was accepted."
    },
    "clusters check": {ExitCode.ERROR: "A feature that the settings use would fail."},
    "access who": {ExitCode.GUARD_STOPPED: _OTHER_CLUSTER},
    "access what": {ExitCode.GUARD_STOPPED: _OTHER_CLUSTER},
    "policies explain": {ExitCode.GUARD_STOPPED: _OTHER_CLUSTER},
    "policies audit": {ExitCode.CHANGES_PENDING: "With `--detailed-exitcode`: there are findings."},
}
"""Command -> the codes that it has beside those of every command, or in a special case, and their meanings."""
