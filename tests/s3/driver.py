"""Run commands from standard input, one JSON list of arguments per line, and print how each ended."""

from __future__ import annotations

import json
import os
import sys

from click.testing import CliRunner

from topicledger.cli import main

if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        done = CliRunner().invoke(main, json.loads(line))
        document = {"exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}
        answers.write(json.dumps(document) + "\n")
        answers.flush()
