"""Every kind of resource beside topics. To add one: a package in `resources`, and its `NAMES` here."""

from __future__ import annotations

from collections.abc import Sequence

from topicledger.naming import KindNames
from topicledger.resources.acls.names import NAMES as ACLS
from topicledger.resources.group_configs.names import NAMES as GROUP_CONFIGS
from topicledger.resources.quotas.names import NAMES as QUOTAS

NAMES: Sequence[KindNames] = (ACLS, QUOTAS, GROUP_CONFIGS)
"""In the order of options, sections and reports."""
