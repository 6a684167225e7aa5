"""Entries of manifest files: the values, rows and errors that all formats are converted to.

Only syntax, field names and types are checked here. Whether a row is valid (legal names, counts above zero, C1 to C3)
is decided together with all other rows of the `manifests` table.
"""

from topicledger.manifests.files.results import (
    FIELDS,
    FileError,
    FileRow,
    Format,
    ManifestRow,
    NotCarriedOver,
    ParsedManifests,
    ResourceRow,
)

__all__ = [
    "FIELDS",
    "FileError",
    "FileRow",
    "Format",
    "ManifestRow",
    "NotCarriedOver",
    "ParsedManifests",
    "ResourceRow",
]
