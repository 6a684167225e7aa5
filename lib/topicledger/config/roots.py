"""The root of the tables: a path, or a schema of a catalog."""

from __future__ import annotations

import re
from pathlib import Path

_PART = r"(?:\w+|`(?:[^`]|``)+`)"
_CATALOG = re.compile(rf"{_PART}\.{_PART}|`(?:[^`]|``)+`")
_DOTTED = re.compile(r"[^./:\\]+(?:\.[^./:\\]+)+")
"""Names with dots between them and no other sign of a path."""
_PIECES = re.compile(r"`(?:[^`]|``)+`|[^.`]+")


def is_in_catalog(root: str) -> bool:
    """Whether a root is `catalog.schema`, with quotes around names that need them, or a quoted schema."""
    return bool(_CATALOG.fullmatch(root))


def root_as(kind: str, root: str) -> str:
    """Return a root that `is_in_catalog` takes for a `path` or a `catalog`, or as it is for `auto`.

    Raises ValueError if it can't be a catalog's schema, or if `auto` can't tell.
    """
    if kind == "path":
        return f"./{root}" if is_in_catalog(root) else root
    if is_in_catalog(root):
        return root
    if kind == "auto":
        if _DOTTED.fullmatch(root):
            raise ValueError(
                'can be a folder or the schema of a catalog: set `tables.root_is` to "path" or "catalog", or put names '
                "of a catalog into backticks"
            )
        return root
    pieces = _PIECES.findall(root)
    quoted = ".".join(piece if piece.startswith("`") else f"`{piece}`" for piece in pieces)
    if ".".join(pieces) != root or "/" in root or ":" in root or not 1 <= len(pieces) <= 2:
        raise ValueError("is not `catalog.schema`, as `root_is` says: put names with other characters into backticks")
    return quoted


def missing_root(root: str) -> Path | None:
    """Return the absolute path of a local root that doesn't exist; None for any other root."""
    scheme, found, rest = root.partition(":")
    if is_in_catalog(root) or (found and scheme != "file"):
        return None
    folder = Path(re.sub(r"^/+", "/", rest)) if found else Path(root).absolute()
    return None if folder.is_dir() else folder
