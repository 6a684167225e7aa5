"""The first table of docs/permissions.md."""

from __future__ import annotations

from tests.commands import REPOSITORY

PAGE = REPOSITORY / "docs" / "permissions.md"


def rows_of_page() -> dict[str, dict[str, list[str]]]:
    """Rows of the page's first table: feature -> column -> operations."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").partition("\n## ")[0].splitlines() if line[:1] == "|"]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {
        feature: {name: cell.split(", ") for name, cell in zip(head[1:], cells, strict=True) if cell}
        for feature, *cells in rows
    }
