"""The scope of a run: the clusters, kinds of actions, owners, topics and files that it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from topicledger.text import listed, show

_NAMED = 20
"""Most names in a message of owners that a scope leaves out, which are all but the requester's. Names of other limits
are not cut."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Limits of a run: nothing outside of them is decided, refused, guarded or counted. Each empty limit allows all.

    A resource must be within every limit. Rules about resources together see the whole cluster.
    """

    clusters: tuple[str, ...] = ()
    """Names of clusters."""
    kinds: tuple[str, ...] = ()
    """Kinds of actions, as `--only` names them."""
    owners: tuple[str, ...] = ()
    """Owners in declarations, compared regardless of blanks and case."""
    topics: tuple[str, ...] = ()
    """Patterns (RE2): topics whose name matches one of them, and resources about such a topic."""
    resources: tuple[str, ...] = ()
    """Patterns (RE2): resources other than topics whose text matches one of them. With `topics`: either is enough."""
    files: bool = False
    """Only rows that loading the files of a plan adds, changes or removes."""
    barred: tuple[str, ...] = ()
    """Owners whose declarations the requester may not plan: see `[owners.NAME] requested_by`."""

    @property
    def limits(self) -> Self:
        """The same scope without limits of clusters and kinds of actions, in order."""
        return replace(self.in_order(), clusters=(), kinds=())

    @property
    def asked(self) -> Self:
        """`limits` without `barred`, which follows from who asked: two runs with the same are about the same."""
        return replace(self.limits, barred=())

    @property
    def narrows(self) -> bool:
        """Whether some resources of the clusters may be outside."""
        return self.limits != type(self)()

    @property
    def selects_rows(self) -> bool:
        """Whether some rows of declarations may be outside, whatever files are given."""
        return bool(self.owners or self.topics or self.resources)

    def in_order(self) -> Self:
        """Return the same scope with each limit's names sorted, each once."""
        limits: dict[str, Any] = {
            name: tuple(sorted(set(value))) if isinstance(value, tuple) else value for name, value in vars(self).items()
        }
        return replace(self, **limits)

    def to_json(self) -> str | None:
        """Return the text that `runs.scope` keeps; None for everything."""
        limits = {name: value for name, value in asdict(self.in_order()).items() if value}
        return json.dumps(limits, sort_keys=True) if limits else None

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Parse what `to_json` returns."""
        limits: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text or "{}").items()
        }
        return cls(**limits)

    def __str__(self) -> str:
        """Return the limits within the run's clusters, in words."""
        return "; ".join(self._words()) or "everything"

    def _words(self) -> Iterator[str]:
        if self.files:
            yield "the files"
        for one, many, names in (
            ("owner", "owners", self.owners),
            ("topic", "topics", self.topics),
            ("resource", "resources", self.resources),
        ):
            if names:
                yield f"{one if len(names) == 1 else many} {_listed(names)}"
        if self.barred:
            left_out = listed([show(name) for name in self.barred[:_NAMED]], len(self.barred), most=_NAMED)
            yield f"not {'owner' if len(self.barred) == 1 else 'owners'} {left_out}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(show, names))


EVERYTHING = Scope()
