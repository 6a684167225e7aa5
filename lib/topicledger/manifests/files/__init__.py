"""Entries of manifest files: the values, rows and errors that all formats become.

Only what the file alone shows is checked here: syntax, names of fields, types. Whether a row makes sense (legal names,
counts above zero, C1 to C3) is decided with all other rows of the `manifests` table.
"""

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
    "FileError",
    "Format",
    "ManifestRow",
    "NotCarriedOver",
    "ParsedManifests",
    "ResourceRow",
]
