"""JSON results of commands: objects have the version of their format and the exit code; rows are an array."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from click.testing import CliRunner

import topicledger
from topicledger.cli import main

PACKAGE = Path(topicledger.__file__).parent
OTHERS = {"cli/schema.py"}
"""Prints a schema, which has a format of its own."""


def test_documents_without_a_ledger_have_version_and_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[tables]\nroot = "ledger"\n[clusters.main]\nbootstrap_servers = ["localhost:9092"]\n')
    for command in ("list", "check"):
        result = CliRunner().invoke(main, ["policies", command, "--config", str(path), "--format", "json"])
        found = json.loads(result.stdout)
        assert list(found)[:2] == ["format_version", "exit_code"]
        assert (found["format_version"], found["exit_code"]) == (1, result.exit_code)


def test_commands_print_objects_by_document_only() -> None:
    """`document` can't be called without an exit code, so no other call may make the text."""
    printed = set()
    for path in [*(PACKAGE / "cli").glob("*.py"), *(PACKAGE / "serving").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("click.echo", "print_result")
                and any("json.dumps" in ast.unparse(each) for each in node.args)
            ):
                printed.add(path.relative_to(PACKAGE).as_posix())
    assert printed == OTHERS
