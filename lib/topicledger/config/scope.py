"""[scope]: topics and other resources that belong to others and that the job leaves alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topicledger.config.toml_table import TomlTable
from topicledger.kinds import NAMES

OF_KINDS: Mapping[str, str] = {
    name: f"Likewise patterns of the column `{column}` of `{kind.package}`: {kind.many} that match are left alone."
    for kind in NAMES
    for name, column in kind.ignores.items()
}
"""Patterns of resources beside topics: name -> meaning."""


@dataclass(frozen=True, kw_only=True)
class ScopeSettings:
    """Resources that belong to others."""

    ignore_topics: tuple[str, ...] = ()
    """Patterns (RE2) of topics that match anywhere in the name unless anchored. They can't be declared; audits report
    no drift of them, exports leave them out, and `prune` never deletes them."""
    of_kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The patterns of `OF_KINDS`, none if missing."""

    def patterns(self, name: str) -> tuple[str, ...]:
        """Return the patterns of a setting."""
        return self.ignore_topics if name == "ignore_topics" else self.of_kinds.get(name, ())

    def ignored(self, name: str, values: Sequence[str | None]) -> list[bool]:
        """Return for each value whether a pattern of this setting matches it."""
        found = [False] * len(values)
        if not self.patterns(name):
            return found
        # The module takes long to import, and few settings need it.
        import pyarrow as pa
        import pyarrow.compute as pc

        names = pa.array(values, pa.string())
        for pattern in self.patterns(name):
            matched = pc.match_substring_regex(names, pattern=pattern).to_pylist()
            found = [one or bool(other) for one, other in zip(found, matched, strict=True)]
        return found

    def digested(self) -> Mapping[str, object]:
        """Return the part that decisions and audits depend on; empty if there is none."""
        given = {"ignore_topics": self.ignore_topics, **self.of_kinds}
        return {"scope": given} if any(given.values()) else {}


def matches_ignored(one: str, name: str) -> str:
    """Return why a resource, such as "topic", can't be declared: a pattern of the setting `name` matches it."""
    return (
        f"the {one} matches a pattern of scope.{name} in the settings, so it can't be declared; remove the row, or the "
        "pattern"
    )


TOPICS_IGNORED: Mapping[str, str] = {
    "topic": matches_ignored("topic", "ignore_topics"),
    "replaces": "replaces names a topic that a pattern of scope.ignore_topics in the settings matches, so runs "
    "leave it to others; remove replaces, or the pattern",
}
"""Why a row can't name ignored topics, by column."""


def read_scope(table: TomlTable) -> ScopeSettings:
    """[scope]"""
    table.only("ignore_topics", *OF_KINDS)
    return ScopeSettings(
        ignore_topics=table.patterns("ignore_topics", some=True),
        of_kinds={name: found for name in OF_KINDS if (found := table.patterns(name, some=True))},
    )
