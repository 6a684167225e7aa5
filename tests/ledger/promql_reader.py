"""Parse expressions of PromQL (a JSON array in a file), in the environment build/queries; print how many there are."""

import json
import sys
from pathlib import Path

import promql_parser

expressions = json.loads(Path(sys.argv[1]).read_text())
for expression in expressions:
    promql_parser.parse(expression.replace("$command", "apply").replace("$cluster", "main"))
print(len(expressions))
