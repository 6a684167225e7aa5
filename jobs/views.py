"""spark-submit entry point: see `topicledger.cli.queries.views_command`."""

from topicledger.cli.queries import views_command

if __name__ == "__main__":
    views_command()
