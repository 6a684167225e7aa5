"""examples/databricks: what may be checked of the bundle without Databricks."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import click
import yaml

from topicledger import cli

EXAMPLE = Path(__file__).parents[2] / "examples" / "databricks"


def is_accepted(arguments: list[str]) -> bool:
    """Whether the command has these options."""
    command = cli.main.get_command(click.Context(cli.main), arguments[0])
    assert command is not None
    command.make_context(arguments[0], arguments[1:])
    return True


def test_jobs_of_the_bundle_use_options_and_files_that_exist() -> None:
    bundle: dict[str, Any] = yaml.safe_load((EXAMPLE / "databricks.yml").read_text())
    jobs = bundle["resources"]["jobs"]
    (classic,), (serverless,) = jobs["classic"]["tasks"], jobs["serverless"]["tasks"]
    assert is_accepted(list(classic["python_wheel_task"]["parameters"]))
    notebook = EXAMPLE / serverless["notebook_task"]["notebook_path"]
    assert notebook.read_text().startswith("# Databricks notebook source\n")
    tree = ast.parse(notebook.read_text())
    (arguments,) = [each for each in ast.walk(tree) if isinstance(each, ast.List)]
    words = [each.value if isinstance(each, ast.Constant) else "x" for each in arguments.elts]
    assert is_accepted([str(each) for each in words])
    given = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)}
    assert serverless["notebook_task"]["base_parameters"].keys() <= given
