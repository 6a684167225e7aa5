"""Messages of Kafka's protocol that kafka-python doesn't have yet; their fields are in the JSON files beside this one.

The files say what Kafka 4.3.1 says (common/message in kafka-clients, Apache License 2.0), in the form that kafka-python
reads its own from.
"""

from __future__ import annotations

from types import new_class
from typing import Any

from kafka.protocol.api_message import ApiMessage


def _message(name: str) -> Any:
    # Not a class statement: kafka-python is untyped, and what derives from it could not be checked.
    return new_class(name, (ApiMessage,), {"load_json": __name__})


ConsumerGroupDescribeRequest = _message("ConsumerGroupDescribeRequest")
"""Asks for the members of groups of the consumer protocol (KIP-848)."""
ShareGroupDescribeRequest = _message("ShareGroupDescribeRequest")
"""Asks for the members of share groups (KIP-932)."""
StreamsGroupDescribeRequest = _message("StreamsGroupDescribeRequest")
"""Asks for the members and the topology of streams groups (KIP-1071)."""
DescribeShareGroupOffsetsRequest = _message("DescribeShareGroupOffsetsRequest")
"""Asks how far share groups have read (KIP-932)."""

# kafka-python finds these by their numbers, and holds on to none of them.
_responses = (
    _message("ConsumerGroupDescribeResponse"),
    _message("ShareGroupDescribeResponse"),
    _message("StreamsGroupDescribeResponse"),
    _message("DescribeShareGroupOffsetsResponse"),
)
