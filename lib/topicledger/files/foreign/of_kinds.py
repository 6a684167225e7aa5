"""The parts of other tools' files about resources beside topics: from the module `foreign` of each kind's package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from topicledger.files.foreign.parts import Parts
from topicledger.kinds import NAMES

PARTS: Mapping[str, Parts] = {
    names.many: import_module(f"topicledger.resources.{names.package}.foreign").PARTS for names in NAMES
}
"""By name of the kind, as messages write several of them."""
