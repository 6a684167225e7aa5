"""[scope]: topics that belong to others and that the job leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topicledger.config.toml_table import TomlTable

MATCHES_IGNORED = (
    "the topic matches a pattern of scope.ignore_topics in the settings, so it can't be declared; remove the row, or "
    "the pattern"
)


@dataclass(frozen=True, kw_only=True)
class ScopeSettings:
    """Topics that belong to others, such as those that Kafka Streams, Connect and MirrorMaker create."""

    ignore_topics: tuple[str, ...] = ()
    """Patterns (RE2) of topics that match anywhere in the name unless anchored. They can't be declared; audits and
    exports leave them out, and `prune` never deletes them."""

    def ignored(self, topics: Sequence[str]) -> list[bool]:
        """Return for each topic whether it is ignored."""
        if not self.ignore_topics:
            return [False] * len(topics)
        # The module takes long to import, and few settings need it.
        import pyarrow as pa
        import pyarrow.compute as pc

        names = pa.array(topics, pa.string())
        found = [False] * len(topics)
        for pattern in self.ignore_topics:
            matched = pc.match_substring_regex(names, pattern=pattern).to_pylist()
            found = [one or other for one, other in zip(found, matched, strict=True)]
        return found


def read_scope(table: TomlTable) -> ScopeSettings:
    """[scope]"""
    table.only("ignore_topics")
    return ScopeSettings(ignore_topics=table.patterns("ignore_topics"))
