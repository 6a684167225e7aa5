"""Hosts of addresses in the settings."""

from __future__ import annotations

import re
from ipaddress import ip_address

_LABEL = r"[A-Za-z0-9_-]{1,63}"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")


def is_host(text: str) -> bool:
    """Whether a text can be the name or the IP address of a host; IPv6 without brackets.

    Python can't resolve a name with an empty label, or a label of over 63 characters: it raises UnicodeError.
    """
    return bool(_HOST.fullmatch(text)) or (":" in text and _is_address(text))


def is_this_machine(host: str) -> bool:
    """Whether a host's name or IP address means this machine, whatever the network is."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
