"""Ends with 1 if a changed manifest in an owner's folder has another owner, or none: its plan would leave it out.

  check_owners.py FOLDER < CHANGED

CHANGED: paths of changed files, each with a NUL after it. The manifests of an owner are in FOLDER/OWNER/, as owners.sh
says. Errors of the files themselves are for `plan` to report. Needs the Python that has topicledger.
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePath

from topicledger.config.ownership import owner_key
from topicledger.files.reading import read_manifest_files
from topicledger.text import show


def main(folder: Path, changed: set[PurePath]) -> int:
    """Print a line for each such entry; return the exit code."""
    owners = {path.relative_to(folder).parts[0] for path in changed if len(path.relative_to(folder).parts) > 1}
    code = 0
    for owner in sorted(owners - {"unowned"}):
        # The whole folder: within it, no link can lead to a file elsewhere.
        there = folder / owner
        rows = read_manifest_files([there], sys.stdin).every_row if there.is_dir() else []
        for row in rows:
            found = row.owner or ""
            if PurePath(row.file) in changed and owner_key(found) != owner_key(owner):
                whose = f"the owner {show(found)}" if found else "no owner"
                print(f"{show(row.file)}:{row.line}: has {whose}, in the folder of {owner}", file=sys.stderr)
                code = 1
    return code


if __name__ == "__main__":
    names = sys.stdin.buffer.read().decode(errors="surrogateescape").split("\0")
    sys.exit(main(Path(sys.argv[1]), {PurePath(name) for name in names if name}))
