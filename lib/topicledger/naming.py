"""Base classes for the names of a kind: of its actions, errors and settings.

Packages that `resources` imports need the names without the kind: see `kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeVar


class ActionName(StrEnum):
    """Names of kinds of actions."""


class RefusalName(StrEnum):
    """Names of errors that are ours, not the broker's (error_code -1)."""

    @property
    def acts_like_guard(self) -> bool:
        """Whether a run exits as if a guard had stopped the action, although no setting allows it."""
        return False


class DriftName(StrEnum):
    """Names of kinds of drift."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Base class of a kind's own table in the settings: each field is a list of strings."""

    table: ClassVar[str]
    """The table's name."""
    patterns: ClassVar[tuple[str, ...]]
    """Fields whose strings are patterns (RE2)."""
    principals: ClassVar[tuple[str, ...]] = ()
    """Fields whose strings are principals."""
    audited: ClassVar[tuple[str, ...]]
    """Fields that affect an audit."""


_SectionT = TypeVar("_SectionT", bound=Section)


class Sections(tuple[Section, ...]):
    """The tables of all kinds that have one."""

    def of(self, section: type[_SectionT]) -> _SectionT:
        """Return the table of this class, with its defaults if there is none."""
        return next((each for each in self if isinstance(each, section)), section())


@dataclass(frozen=True, kw_only=True)
class KindNames:
    """Names of a kind of resource beside topics in settings, tables and messages."""

    resource_type: str
    """One of them in `plans` and `audit`, in options, and in the settings under [[policies]]."""
    package: str
    """The package in `resources`, named as the table."""
    one: str
    """One of them in messages."""
    many: str
    """Several of them in messages."""
    actions: type[ActionName]
    refusals: type[RefusalName]
    """Errors of this kind only."""
    invalid: RefusalName
    """The error of a row that can't be declared."""
    ignores: Mapping[str, str]
    """Settings of [scope], lists of patterns: name -> the column of its table that must match to leave one alone."""
    drift: Mapping[DriftName, str]
    """Kinds of drift, each with its default severity."""
    guards: Mapping[str, str]
    """Settings of [guards], all 0 by default: name -> meaning."""
    section: type[Section] | None
    """Its own table in the settings; None if it needs none."""
    approved_as: str
    """The class of `guards.approvals_for` to which plans with such actions belong."""

    @property
    def with_article(self) -> str:
        """One of them, with its article."""
        return f"{'an' if self.one[0] in 'AEIOU' else 'a'} {self.one}"

    @property
    def option(self) -> str:
        """The option that names one of them."""
        return f"--{self.resource_type.replace('_', '-')}"

    @property
    def export_option(self) -> str:
        """The option of `export` for all of them: `--with-TABLE`."""
        return f"--with-{self.package.replace('_', '-')}"
