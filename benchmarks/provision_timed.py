"""spark-submit.sh benchmarks/provision_timed.py SETTINGS: `provision`, timed from the moment its session is ready."""

from __future__ import annotations

import sys
import time

from topicledger import cli
from topicledger.ledger.session import get_session


def main() -> None:
    """Provision as the command does."""
    get_session("provision")
    began = time.monotonic()
    try:
        cli.main(["provision", "--config", sys.argv[1], "--format", "json"], standalone_mode=False)
    finally:
        print(f"\nfrom session ready to exit: {time.monotonic() - began:.3f} s")


if __name__ == "__main__":
    main()
