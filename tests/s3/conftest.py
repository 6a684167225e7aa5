"""An S3 server for all tests of tables on S3.

If it isn't set up (`make setup-s3`), these tests are skipped, unless TOPICLEDGER_S3=required.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.s3.storage import PYTHON, S3A, Server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not PYTHON.exists() or not (S3A / ".complete").exists():
        reason = "there is no server in build/s3, or no S3A in build/jars/s3: make setup-s3"
        if os.environ.get("TOPICLEDGER_S3") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    server = Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()
