"""spark-submit entry point: see `topicledger.cli.drift.audit`."""

from topicledger.cli.drift import audit

if __name__ == "__main__":
    audit()
