"""Values that phases of apply hand on."""

from __future__ import annotations

import pytest

from topicledger.apply.values import after
from topicledger.errors import ExitCode, TopicLedgerError, UsageError


def test_a_usage_error_says_that_nothing_was_done_only_if_nothing_was() -> None:
    with pytest.raises(UsageError, match="no such cluster"), after([]):
        raise UsageError("no such cluster")
    with pytest.raises(TopicLedgerError, match="no such cluster") as error, after(["a batch"]):
        raise UsageError("no such cluster")
    assert error.value.exit_code == ExitCode.ERROR
