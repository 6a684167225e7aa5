"""The kinds of actions on topics; waves and throttles of moves.

To add one: a module like `create`, and its `KIND` in `ACTIONS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from topicledger.actions.kind import ActionKind
from topicledger.resources.topics.actions import (
    add_partitions,
    alter_configs,
    create,
    delete,
    elect_leaders,
    reassign,
)

ACTIONS: Sequence[ActionKind] = (
    delete.KIND,
    create.KIND,
    add_partitions.KIND,
    alter_configs.KIND,
    reassign.KIND,
    elect_leaders.KIND,
)
