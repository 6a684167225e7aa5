"""spark-submit entry point: see `topicledger.serving.command.serve`."""

from topicledger.serving.command import serve

if __name__ == "__main__":
    serve()
