"""The addresses that processes listen on."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from pathlib import Path


def listened_on(pid: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses that a process listens on, as the kernel says; none if it has ended."""
    sockets = set()
    with suppress(FileNotFoundError):
        for number in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                sockets.add(str(number.readlink()))
    if not sockets:
        return []
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                words = bytes.fromhex(local.partition(":")[0])
                # Words of four bytes, in the order of the machine's.
                packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                address = ipaddress.ip_address(packed)
                mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
                found.append(mapped or address)
    return found
