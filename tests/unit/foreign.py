"""Files of other tools, read in a test."""

from __future__ import annotations

import io
from collections.abc import Callable

from topicledger.manifests.files import ParsedManifests

Read = Callable[..., ParsedManifests]


NOTHING = io.StringIO("")


def errors(parsed: ParsedManifests) -> list[str]:
    return [str(error) for error in parsed.errors]


def leftovers(parsed: ParsedManifests) -> dict[str, int]:
    """The keys that were not carried over, with their lines."""
    return {each.key: each.line for each in parsed.not_carried_over}


PLANS = "plans:\n  gold: {alias: gold, config: {retention.ms: '5000', num.partitions: '8'}}\n"
