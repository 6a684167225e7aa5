"""Manifest files (YAML, JSON, CSV) -> manifest rows, with the line of every row and of everything wrong.

Only what the file alone shows is judged here: syntax, names of fields, types. Whether a row makes sense (legal names,
counts above zero, C1 to C3) is decided with all other rows of the `manifests` table.

The three formats become the same few values first (`values`), which one place checks (`entries`), so that a field means
the same and is refused in the same words wherever it is written. Files of other tools (`foreign`) become the same rows.
"""

from topicledger.manifests.files.reading import STDIN_NAME, read_foreign_files, read_manifest_files
from topicledger.manifests.files.results import (
    FIELDS,
    FileError,
    Format,
    ManifestRow,
    NotCarriedOver,
    ParsedManifests,
    ResourceRow,
)

__all__ = [
    "FIELDS",
    "STDIN_NAME",
    "FileError",
    "Format",
    "ManifestRow",
    "NotCarriedOver",
    "ParsedManifests",
    "ResourceRow",
    "read_foreign_files",
    "read_manifest_files",
]
