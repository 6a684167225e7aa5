"""spark-submit entry point: see `topicledger.cli.queries.sql`."""

from topicledger.cli.queries import sql

if __name__ == "__main__":
    sql()
