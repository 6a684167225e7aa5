"""Make dist/topicledger.zip, what spark-submit's --py-files takes: the package, its schemas as real files.

The same sources give the same bytes, and a file that is already right is not touched.
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
    """Every file of the package, links followed, without what Python and editors leave."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from sources(path)
        elif path.suffix != ".pyc":
            yield path


def archive() -> bytes:
    """The zip's bytes: order, times and modes depend on nothing but the sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sources(PACKAGE):
            entry = zipfile.ZipInfo(path.relative_to(PACKAGE.parent).as_posix(), EARLIEST)
            entry.external_attr = 0o644 << 16
            target.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def main() -> None:
    """Write the zip if it is not there or not right."""
    content = archive()
    if TARGET.is_file() and TARGET.read_bytes() == content:
        return
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    # A job that starts at this moment sees the old file or the new one, never half of one.
    unfinished = TARGET.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_bytes(content)
    unfinished.replace(TARGET)
    print(f"{TARGET.relative_to(REPOSITORY)}: {len(content)} bytes")


if __name__ == "__main__":
    main()
