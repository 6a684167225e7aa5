"""A quota on a client's changes, and counters of requests under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topicledger.kafka import Response
from topicledger.kafka.sending import THROTTLING_QUOTA_EXCEEDED
from topicledger.model import Target

RATE = 20.0


BURST_SECONDS = 11
"""The default of controller.quota.window.num."""


class Counted:
    """Records the answer to each request for changes."""

    def __init__(self, request: Callable[..., Response]) -> None:
        self.request = request
        self.codes: list[dict[str, int]] = []

    def __call__(self, targets: Sequence[Target], **how: Any) -> Response:
        response = self.request(targets, **how)
        self.codes.append({topic: result.error_code for topic, result in response.results.items()})
        return response

    @property
    def requests(self) -> int:
        return len(self.codes)

    @property
    def throttled(self) -> int:
        return sum(THROTTLING_QUOTA_EXCEEDED in codes.values() for codes in self.codes)

    def accepted(self) -> list[str]:
        return [topic for codes in self.codes for topic, code in codes.items() if code == 0]
