"""One YARN, and one broker beside it, for all tests here.

Where its jars aren't set up (`make setup-clusters`) these tests are skipped, unless TOPICLEDGER_CLUSTERS=required.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.yarn.cluster import JARS, Yarn, yarn_cluster


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    if not (JARS / ".complete").exists():
        reason = "there is no YARN in build/jars/yarn: make setup-clusters"
        if os.environ.get("TOPICLEDGER_CLUSTERS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster
