"""The rules of `rows.row_rules` for rows of files, which are checked before there is a Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from topicledger.manifests.file_rows import configs_reason, state_reason
from topicledger.manifests.files import ResourceRow
from topicledger.manifests.rows import PRESENT
from topicledger.resources.group_configs.rows import NO_CONFIGS, NO_GROUP


def reasons(row: ResourceRow) -> Iterator[str | None]:
    """Yield the reason of each rule, None if the row keeps it."""
    configs = cast(Mapping[str, str] | None, row.values["configs"])
    yield None if row.values["group"] else NO_GROUP
    yield NO_CONFIGS if row.state == PRESENT and not configs else None
    yield configs_reason(configs)
    yield state_reason(row.state)
