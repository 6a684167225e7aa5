"""How much is tried: a few faults with every test run, all of them with `make test-faults`."""

from __future__ import annotations

import os

import pytest

KILLS = int(os.environ.get("TOPICLEDGER_KILLS", "2"))
"""How often drivers are killed."""
SEED = int(os.environ.get("TOPICLEDGER_SEED", "20261121"))
"""Of what is random."""
THOROUGH = KILLS >= 20

thorough = pytest.mark.skipif(not THOROUGH, reason="takes minutes: make test-faults")
"""For tests that are not part of every test run."""
