"""spark-submit entry point: see `topicledger.cli.report_command`."""

from topicledger.cli import report_command

if __name__ == "__main__":
    report_command()
