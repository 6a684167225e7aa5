"""spark-submit entry point: see `topicledger.cli.audit`."""

from topicledger.cli import audit

if __name__ == "__main__":
    audit()
