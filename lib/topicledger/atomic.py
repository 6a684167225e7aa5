"""Files that readers find either as they were or complete."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write(path: Path, lines: Iterable[str]) -> None:
    """Write a text file as UTF-8; if that fails, an earlier file stays as it was. A link leads to the file.

    An earlier file keeps its permissions. The text is written in place if the file can't be replaced: a pipe, a device
    such as /dev/null, or a mount, as Kubernetes' /dev/termination-log is. Raises OSError.
    """
    target = path.resolve()
    if target.exists() and (not target.is_file() or os.path.ismount(target)):
        with target.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
        return
    unfinished = target.with_name(f".{target.name[:50]}-{secrets.token_hex(8)}.part")
    try:
        with unfinished.open("x", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
        if target.exists():
            unfinished.chmod(target.stat().st_mode & 0o777)
        unfinished.replace(target)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
