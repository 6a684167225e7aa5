"""The parts of other tools' files about one kind of resource beside topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from topicledger.files.foreign.contract import ForeignFormat
from topicledger.files.foreign.fields import Fields
from topicledger.files.foreign.julie_properties import Lists, Properties
from topicledger.files.foreign.resources import Resource
from topicledger.manifests.files.entries import Reader

Read: TypeAlias = Callable[[Fields, Reader, str | None], None]
"""Takes its keys of a mapping, and reports their rows for a cluster, or their errors."""
ReadUser: TypeAlias = Callable[[Fields, str, Reader], Callable[[str | None, str | None], None] | None]
"""Takes its keys of the spec of a user. Returns a function that reports their rows for a cluster and an owner; None if
there are none."""


@dataclass(frozen=True, kw_only=True)
class JikkouPart:
    """Jikkou's resources of a kind."""

    kinds: tuple[str, ...]
    """Their `kind`."""
    lists: Mapping[str, str]
    """The `kind` of a list of them, whose metadata may be left out -> theirs."""
    read: Callable[[Sequence[Resource], str | None], None]
    """Reports the rows of all of them, for a cluster."""


@dataclass(frozen=True, kw_only=True)
class JuliePart:
    """The keys about a kind in Julie's descriptors."""

    descriptor: Read | None
    """Those of a descriptor as a whole."""
    project: Callable[[Fields, Sequence[str], Properties, Reader, str | None], None] | None
    """Those of a project, with the names of its topics, and Julie's properties."""
    topic: Callable[[Fields, Sequence[str], Reader, str | None], None] | None
    """Those of a topic, with its name, if it has one."""
    follows: Sequence[str] = ()
    """Names of the properties that it follows."""
    lists: Lists | None = None
    """Lists the properties that it can't follow."""


@dataclass(frozen=True, kw_only=True)
class GitopsState:
    """A state of kafka-gitops, of which parts take their keys."""

    fields: Fields
    reader: Reader
    beside: Sequence[str]
    """Operations on topics that services get beside READ and WRITE."""


@dataclass(frozen=True, kw_only=True)
class GitopsPart:
    """The keys about a kind in the states of kafka-gitops."""

    beside: Callable[[Fields], Sequence[str]]
    """Takes its keys of the settings of services, and returns the operations of `GitopsState.beside`."""
    read: Callable[[Sequence[GitopsState], str | None], None]
    """Reports the rows of all states for a cluster: services and users of one state may have rights in another."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The files and parts of files that are about one kind of resource. None: the tool has nothing about it."""

    formats: tuple[ForeignFormat, ...]
    """Formats of files about nothing else."""
    jikkou: JikkouPart | None
    julie: JuliePart | None
    kafka_gitops: GitopsPart | None
    strimzi: ReadUser | None
