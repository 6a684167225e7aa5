"""Creates policies from the run settings: finds each factory, checks its settings by its parameters, and calls it."""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column

from topicledger.config.reading import problems_of
from topicledger.config.settings import OF_EVERY_POLICY, PolicySettings, PolicySpec, Settings
from topicledger.model import Action, ReplicaAction
from topicledger.policies.built_in import ALSO, ALWAYS, BUILT_IN, Factory
from topicledger.policies.contract import CHANGES, OF_TOPICS, Evaluated, Policy, RowRule, changes_replication_factor
from topicledger.resources.registry import KINDS
from topicledger.text import nearest, show

ENTRY_POINTS = "topicledger.policies"
"""The group of entry points by which an installed package offers policies."""

_SHOWN_CHARACTERS = 400
"""Most characters of a factory's own message, whose reason may be at the end."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A setting of a policy: one parameter of its factory."""

    name: str
    type: Any
    """Its annotation; None if there is none or it can't be resolved: then the value isn't checked."""
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def always(*, changes: bool = False) -> Sequence[Policy]:
    """The policies that are always on, deletes first; those for changes and moves only if a run changes anything."""
    return [
        Policy(name=name, action=action, rule=factory(), error=error)
        for action, named in ALWAYS.items()
        for name, (factory, error) in named.items()
        if changes or action not in (*CHANGES, ReplicaAction.REASSIGN)
    ]


def from_settings(settings: Settings, *, reverts: bool = False, besides: Sequence[str] = ()) -> Sequence[Policy]:
    """The policies of a run: those that are always on, then those of the settings, in their order (P4).

    Policies for changes are included if the settings allow changes, or the run reverts some. Raises one SettingsError
    with every problem: a policy that doesn't exist, can't be imported or can't be created, and settings that are
    unknown, missing, of a wrong type, or that its factory refuses; after `besides`, the other problems of the file.
    """
    problems = list(besides)
    changes = reverts or bool(settings.changes)
    policies = list(always(changes=changes))
    found = settings.policies
    for action, specs in ((Action.DELETE, found.delete), (Action.CREATE, found.create)):
        for spec in specs:
            policy = _policy(spec, action, problems)
            if policy is not None:
                policies += [policy, *(_of_changes(policy, spec) if changes else ())]
    for spec in found.change:
        kinds = _of_change(spec)
        made = _policy(spec, kinds[0], problems)
        if made is not None:
            policies += [replace(made, action=kind) for kind in kinds]
    for evaluated, spec in _beside_topics(found):
        made = _policy(spec, evaluated, problems)
        policies += [] if made is None else [made]
    if problems:
        raise problems_of(settings.path, problems)
    return policies


def check(settings: Settings) -> None:
    """Check the policies of the settings, as far as possible without a Spark session, with `from_settings`'s messages.

    Raises one SettingsError that lists policies that don't exist, and settings of built-in ones that are unknown,
    missing, of a wrong type, or that their factory refuses. User policies are not imported: they may need a session.
    """
    problems = list[str]()
    found = settings.policies
    named: list[tuple[Evaluated, PolicySpec]] = [
        *((Action.DELETE, spec) for spec in found.delete),
        *((Action.CREATE, spec) for spec in found.create),
        *((_of_change(spec)[0], spec) for spec in found.change),
        *_beside_topics(found),
    ]
    for action, spec in named:
        exists = spec.use in BUILT_IN[action]
        if exists or ":" in spec.use or _offered(spec, action, problems) is not None:
            _check_scope(spec, action, problems)
        if exists:
            check_built_in(spec, BUILT_IN[action][spec.use], problems)
    if problems:
        raise problems_of(settings.path, problems)


def check_built_in(spec: PolicySpec, factory: Factory, problems: list[str]) -> None:
    """As `check`, for one policy; adds to `problems`."""
    where, before = f"{spec.where}: {show(spec.use)}", len(problems)
    _check_options(where, factory, spec.options, problems)
    if len(problems) > before:
        return
    try:
        factory(**spec.options)
    except ValueError as error:
        problems.append(f"{where}: {show(str(error), _SHOWN_CHARACTERS)}")
    except (PySparkException, AssertionError):
        # Its settings are fine: it came as far as its first Column, which needs a session. PySpark asserts that there
        # is one for some of its functions, and raises for others.
        return


def users_own(settings: Settings) -> Sequence[tuple[str, str, Factory]]:
    """The user's own policies in the settings: the section, the name and the factory of each.

    Raises one SettingsError that lists policies that don't exist or can't be imported.
    """
    found, problems = [], list[str]()
    named = settings.policies
    specs: list[tuple[Evaluated, PolicySpec]] = [
        *((Action.DELETE, spec) for spec in named.delete),
        *((Action.CREATE, spec) for spec in named.create),
        *((Action.ADD_PARTITIONS, spec) for spec in named.change),
        *_beside_topics(named),
    ]
    for action, spec in specs:
        if any(spec.use in each for each in BUILT_IN.values()):
            continue
        factory = _factory(spec, action, problems)
        if factory is not None:
            found.append((_section(action), spec.use, factory))
    if problems:
        raise problems_of(settings.path, problems)
    return list(dict.fromkeys(found))


def _beside_topics(settings: PolicySettings) -> Iterator[tuple[Evaluated, PolicySpec]]:
    """Policies of resources beside topics, each with the kind of action that it evaluates."""
    for kind in KINDS:
        for spec in settings.of_kinds.get(kind.resource_type, ()):
            yield kind.policies.action, spec


def _of_change(spec: PolicySpec) -> Sequence[Evaluated]:
    """The changes that a policy of [[policies.change]] evaluates; a user's own evaluates configs and partitions."""
    return [each for each in (*CHANGES, ReplicaAction.REASSIGN) if spec.use in BUILT_IN[each]] or CHANGES


def _of_changes(policy: Policy, spec: PolicySpec) -> Iterator[Policy]:
    """The same policy for changes, if it evaluates these, too."""
    if policy.action is not Action.CREATE or policy.users_own or policy.name not in ALSO:
        return
    also = ALSO[policy.name]
    if also.growth:
        yield replace(policy, action=Action.ADD_PARTITIONS)
    if also.alters is not None:
        concerns = also.alters(spec.options) if spec.scope != "all" else None
        yield replace(policy, action=Action.ALTER_CONFIGS, concerns=concerns)
    if also.moves:
        concerns = changes_replication_factor() if spec.scope != "all" else None
        yield replace(policy, action=ReplicaAction.REASSIGN, concerns=concerns)


def options(factory: Factory) -> Sequence[Option]:
    """The settings that a factory takes."""
    try:
        hints = typing.get_type_hints(factory)
    except Exception:
        # Annotations are the user's: those that can't be resolved aren't checked.
        hints = {}
    parameters = inspect.signature(factory).parameters.values()
    return [
        Option(name=each.name, type=hints.get(each.name), default=each.default)
        for each in parameters
        if each.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]


def _check_scope(spec: PolicySpec, action: Evaluated, problems: list[str]) -> None:
    """Add a problem if `scope` is set for a policy that evaluates neither altered configs nor moves beside creates."""
    if spec.scope is None:
        return
    also = ALSO.get(spec.use) if action is Action.CREATE else None
    if also is None or (also.alters is None and not also.moves):
        names = ", ".join(name for name, each in ALSO.items() if each.alters is not None or each.moves)
        problems.append(
            f"{spec.where}: {show(spec.use)}: `scope` is for policies of creates that also evaluate altered configs or "
            f"moves: leave it out; known: {names}"
        )


def _policy(spec: PolicySpec, action: Evaluated, problems: list[str]) -> Policy | None:
    where = f"{spec.where}: {show(spec.use)}"
    before = len(problems)
    factory = _factory(spec, action, problems)
    if factory is None:
        return None
    _check_scope(spec, action, problems)
    _check_options(where, factory, spec.options, problems)
    if len(problems) > before:
        return None
    users_own = spec.use not in BUILT_IN[action]
    try:
        rule = factory(**spec.options)
    except ValueError as error:
        problems.append(f"{where}: {show(str(error), _SHOWN_CHARACTERS)}")
        return None
    except Exception as error:
        problems.append(f"{where} failed: {_described(error)}")
        return None
    if not (isinstance(rule, Column | RowRule) or callable(rule)):
        problems.append(f"{where} returned {type(rule).__name__}, not a Column, a RowRule or a function of DataFrames")
        return None
    if spec.needs is not None and action not in OF_TOPICS.actions:
        problems.append(f"{where}: `needs` is for rules about topics: it sets which of them must be visible")
        return None
    if spec.needs is not None and isinstance(rule, Column | RowRule):
        problems.append(f"{where}: `needs` is for rules about several topics, but this rule is about single topics")
        return None
    return Policy(
        name=spec.use,
        action=action,
        rule=rule,
        mode=spec.mode,
        needs=spec.needs,
        clusters=spec.clusters,
        owners=spec.owners,
        labels=spec.labels,
        users_own=users_own,
        settings=spec.options,
    )


def _factory(spec: PolicySpec, action: Evaluated, problems: list[str]) -> Factory | None:
    if spec.use in BUILT_IN[action]:
        return BUILT_IN[action][spec.use]
    if ":" in spec.use:
        return _imported(spec, problems)
    offered = _offered(spec, action, problems)
    if offered is None:
        return None
    try:
        found = offered.load()
    except (Exception, SystemExit) as error:
        problems.append(f"{spec.where}: {show(spec.use)} can't be imported: {_described(error)}")
        return None
    return _callable(spec, found, problems)


def _offered(spec: PolicySpec, action: Evaluated, problems: list[str]) -> EntryPoint | None:
    """The entry point of an installed package by a name that isn't a built-in policy for this action."""
    if any(spec.use in each for each in ALWAYS.values()):
        problems.append(f"{spec.where}: {spec.use} always holds and has no settings: leave it out")
        return None
    others = [each for each in BUILT_IN if spec.use in BUILT_IN[each]]
    if others:
        section = _section(others[0])
        problems.append(f"{spec.where}: {spec.use} is a policy of {section}s: write it under [[policies.{section}]]")
        return None
    offered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
    if spec.use not in offered:
        section = _section(action)
        known = [*(name for each in BUILT_IN if _section(each) == section for name in BUILT_IN[each]), *offered]
        problems.append(f"{spec.where}: there is no {section} policy `{show(spec.use)}`; {nearest(spec.use, known)}")
    return offered.get(spec.use)


def _section(action: Evaluated) -> str:
    """The section of the settings with the policies for an action."""
    return _SECTIONS.get(action, action.value)


_SECTIONS: Mapping[Evaluated, str] = {
    **dict.fromkeys((*CHANGES, ReplicaAction.REASSIGN), "change"),
    **{kind.policies.action: kind.resource_type for kind in KINDS},
}


def _imported(spec: PolicySpec, problems: list[str]) -> Factory | None:
    module_name, _, name = spec.use.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        problems.append(
            f"{spec.where}: {show(spec.use)} can't be imported: {_described(error)}; "
            "install its package, or name it in --py-files"
        )
        return None
    found = getattr(module, name, None)
    if found is None:
        public = [each for each in vars(module) if not each.startswith("_")]
        problems.append(f"{spec.where}: module {module_name} has no `{name}`; {nearest(name, public)}")
        return None
    return _callable(spec, found, problems)


def _callable(spec: PolicySpec, found: object, problems: list[str]) -> Factory | None:
    if not callable(found):
        problems.append(f"{spec.where}: {show(spec.use)} is no function but {type(found).__name__}")
        return None
    try:
        inspect.signature(found)
    except (TypeError, ValueError):
        problems.append(f"{spec.where}: {show(spec.use)} does not list its parameters: name a function of your own")
        return None
    return found


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {show(str(error), _SHOWN_CHARACTERS)}"


def _check_options(where: str, factory: Factory, given: Mapping[str, object], problems: list[str]) -> None:
    taken = options(factory)
    anything = any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in inspect.signature(factory).parameters.values()
    )
    names = [each.name for each in taken]
    for name in given:
        if name not in names and not anything:
            hint = nearest(name, names) if names else "it takes none"
            problems.append(f"{where}: unknown setting `{show(name)}`; {hint}")
    for option in taken:
        if option.name in OF_EVERY_POLICY:
            if option.required:
                problems.append(f"{where}: its parameter `{option.name}` is a setting of every policy: rename it")
        elif option.name in given:
            if option.type is not None and not _fits(given[option.name], option.type):
                problems.append(f"{where}: `{option.name}` must be {type_name(option.type)}")
        elif option.required:
            of_type = f", {type_name(option.type)}" if option.type is not None else ""
            problems.append(f"{where}: `{option.name}`{of_type}, is missing")


def _fits(value: object, wanted: Any) -> bool:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, each) for each in arguments)
    if origin is typing.Literal:
        return value in arguments
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(_fits(each, arguments[1]) for each in value.values())
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        return isinstance(value, list | tuple) and all(_fits(each, arguments[0]) for each in value)
    if wanted is type(None):
        return value is None
    try:
        return isinstance(value, wanted) if isinstance(wanted, type) else True
    except TypeError:
        # `Any` and protocols can't be checked.
        return True


def type_name(wanted: Any) -> str:
    """A type in the words of settings: `a string`, `a list of strings`, `an integer`."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(type_name(each) for each in arguments if each is not type(None))
    if origin is typing.Literal:
        return " or ".join(repr(each) for each in arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table"
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        return f"a list, each {type_name(arguments[0])}"
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    return names.get(wanted, getattr(wanted, "__name__", str(wanted)))
