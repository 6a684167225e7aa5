"""`schema`: descriptions of file formats for other programs."""

from __future__ import annotations

import json

import click

from topicledger.files.schema import manifest_schema


@click.group("schema")
def schema_group() -> None:
    """Describe file formats for other programs."""


@schema_group.command(
    "manifests", short_help="Print the JSON Schema of manifest files.", epilog="Example: topicledger schema manifests"
)
def manifests() -> None:
    """Print the JSON Schema of manifest files (YAML and JSON) for editors. A load checks more."""
    click.echo(json.dumps(manifest_schema(), indent=2))
