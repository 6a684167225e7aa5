"""Make dist/topicledger.zip for spark-submit's --py-files: the package, with its schemas as real files.

The same sources give the same bytes, and an up-to-date file isn't touched.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "lib" / "topicledger"
TARGET = REPOSITORY / "dist" / "topicledger.zip"
EARLIEST = (1980, 1, 1, 0, 0, 0)


def sources(folder: Path) -> Iterator[Path]:
    """Yield every file of the package, following links, without caches and hidden files."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from sources(path)
        elif path.suffix != ".pyc":
            yield path


def archive() -> bytes:
    """Return the zip's bytes; order, times and modes depend only on the sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sources(PACKAGE):
            entry = zipfile.ZipInfo(path.relative_to(PACKAGE.parent).as_posix(), EARLIEST)
            entry.external_attr = 0o644 << 16
            target.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def main() -> None:
    """Write the zip if it is missing or out of date."""
    content = archive()
    if TARGET.is_file() and TARGET.read_bytes() == content:
        return
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    # A job that starts now sees either the old file or the new one, never a partial one.
    unfinished = TARGET.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_bytes(content)
    unfinished.replace(TARGET)
    print(f"{TARGET.relative_to(REPOSITORY)}: {len(content)} bytes")


if __name__ == "__main__":
    main()
