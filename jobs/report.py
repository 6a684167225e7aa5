"""spark-submit entry point: see `topicledger.cli.reports.report_command`."""

from topicledger.cli.reports import report_command

if __name__ == "__main__":
    report_command()
