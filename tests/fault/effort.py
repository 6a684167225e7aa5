"""The number of faults to inject: a few with every test run, all of them with `make test-faults`."""

from __future__ import annotations

import os

KILLS = int(os.environ.get("TOPICLEDGER_KILLS", "1"))
"""Number of times that drivers are killed."""
SEED = int(os.environ.get("TOPICLEDGER_SEED", "20261121"))
"""Seed of random values."""
THOROUGH = KILLS >= 20
"""Whether to inject faults in all their forms."""
