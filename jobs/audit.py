"""spark-submit entry point by the former name, for schedules that have it: see `jobs/drift.py`."""

from topicledger.cli.drift import drift

if __name__ == "__main__":
    drift()
