"""Built-in policies: each is registered where it is defined, by a decorator on its factory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

from pyspark.sql import Column

from topicledger.model import Action, Refusal, ReplicaAction
from topicledger.policies.contract import CHANGES, Evaluated, FullSight, Rule, SetRule

Factory: TypeAlias = Callable[..., Rule]
"""Makes a rule of a policy's settings, its parameters."""
Concerns: TypeAlias = Callable[[Mapping[str, Any]], Column]
"""Returns which altered configs a policy is about (boolean), by its settings."""

BUILT_IN: dict[Evaluated, dict[str, Factory]] = {
    action: {} for action in (Action.CREATE, Action.DELETE, *CHANGES, ReplicaAction.REASSIGN)
}
"""Policies that the settings can name, by action and name; in the order in which `policies list` shows them."""
ALWAYS: dict[Evaluated, dict[str, tuple[Factory, Refusal]]] = {
    action: {} for action in (*Action, ReplicaAction.REASSIGN)
}
"""Policies that no setting turns off, with the error of a refusal; deletes first, since they make room."""


@dataclass(frozen=True, kw_only=True)
class Also:
    """Changes that a policy of creates evaluates, too."""

    growth: bool
    """Added partitions."""
    alters: Concerns | None
    """Altered configs: those that concern the policy if its scope is `changes`."""
    moves: bool
    """Moves; with scope `changes`, those that change the number of replicas."""


ALSO: dict[str, Also] = {}
"""By name of a policy of creates."""
FULL_SIGHT: set[str] = set()
"""Names of policies that need full sight by default: known without calling the factories, which need a session."""

_FactoryT = TypeVar("_FactoryT", bound=Factory)


def built_in(
    *actions: Evaluated,
    growth: bool = False,
    alters: Concerns | None = None,
    moves: bool = False,
    full_sight: bool = False,
) -> Callable[[_FactoryT], _FactoryT]:
    """Register a factory as a policy of these actions, under its own name.

    `full_sight`: its set rules become `FullSight`; the other arguments as in `Also`.
    """

    def register(factory: _FactoryT) -> _FactoryT:
        if full_sight:
            FULL_SIGHT.add(factory.__name__)
            factory = _with_full_sight(factory)
        for action in actions:
            named = BUILT_IN.setdefault(action, {})
            assert factory.__name__ not in named, f"two policies of {action} are called {factory.__name__}"
            named[factory.__name__] = factory
        if growth or alters is not None or moves:
            ALSO[factory.__name__] = Also(growth=growth, alters=alters, moves=moves)
        return factory

    return register


def _with_full_sight(factory: _FactoryT) -> _FactoryT:
    @wraps(factory)
    def made(**options: Any) -> FullSight:
        return FullSight(cast(SetRule, factory(**options)))

    return cast(_FactoryT, made)


def always_on(action: Evaluated, error: Refusal = Refusal.POLICY_VIOLATION) -> Callable[[_FactoryT], _FactoryT]:
    """Register a factory as a policy of this action that no setting turns off."""

    def register(factory: _FactoryT) -> _FactoryT:
        ALWAYS[action][factory.__name__] = (factory, error)
        return factory

    return register
