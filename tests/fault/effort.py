"""How much is tried: a few faults with every test run, all of them with `make test-faults`."""

from __future__ import annotations

import os

KILLS = int(os.environ.get("TOPICLEDGER_KILLS", "1"))
"""How often drivers are killed."""
SEED = int(os.environ.get("TOPICLEDGER_SEED", "20261121"))
"""Of what is random."""
THOROUGH = KILLS >= 20
"""Whether faults are tried in all their forms."""
