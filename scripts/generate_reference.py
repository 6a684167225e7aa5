"""Make the generated references of docs/: the command line, policies, errors, exit codes and metrics."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import cycle
from typing import TypeGuard

import click

from topicledger.cli import exits, main
from topicledger.cli.explain import RULE_IDS
from topicledger.cli.metrics import METRICS
from topicledger.cli.options import ALIASES, common
from topicledger.config.settings import PolicySettings
from topicledger.errors import ExitCode
from topicledger.kafka import error_name
from topicledger.kinds import NAMES
from topicledger.model import Action, Refusal, ReplicaAction
from topicledger.model.refusals import Note
from topicledger.naming import RefusalName
from topicledger.policies.built_in import ALSO, ALWAYS, BUILT_IN, Factory
from topicledger.policies.contract import CHANGES, Evaluated
from topicledger.report import advice
from topicledger.resources.building import Option, options, type_name

_CODES = 200
"""More codes of errors than Kafka has."""


def prose(text: str) -> str:
    """Return text for one line of Markdown; code keeps its `<`."""
    parts = text.replace("\n", " ").split("`")
    return "`".join(part if code else part.replace("<", "&lt;") for part, code in zip(parts, cycle([False, True])))


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its full name, in the order of the help."""
    # This adds `serve` to the group, which tests list without it.
    from topicledger.serving import command  # noqa: F401

    return _within(main)


def _within(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _within(command, *names, name)
        else:
            yield " ".join([*names, name]), command


_COMMON: Mapping[str, click.Option] = {
    str(each.name): each
    for each in click.command()(common(lambda: None)).params
    if isinstance(each, click.Option)
}  # fmt: skip


def command_line() -> str:
    """Return all commands with their options and examples."""
    aliases = {name: alias for alias, name in ALIASES.items()}
    lines = ["## Common options", "", "Most commands have these.", ""]
    lines += [f"{line}{_only(each)}" for line, each in zip(_list([*_COMMON.values()]), _COMMON.values(), strict=False)]
    lines.append("")
    shared = _shared()
    lines += ["## Shared options", "", "Several commands have these. Each command below names those that it has.", ""]
    lines += _list(list(shared.values()))
    for name, command in commands():
        also = f" Also: `{aliases[name]}`." if name in aliases else ""
        given = [each for each in command.params if _is_own(each)]
        own = [each for each in given if _shown(each) not in shared]
        others = [f"`{each.opts[0]}`" for each in given if _shown(each) in shared]
        lines += [f"## {name}", "", f"{_prose(command.help or '')}{also}", ""]
        lines += [*(f"    {line}" for line in (*_usage(name, command), *_example(command))), ""]
        lines += _list(own) if own else []
        lines += [f"Shared options: {', '.join(others)}.", ""] if others else []
    return "\n".join(lines)


def _shared() -> Mapping[str, click.Option]:
    """Return the options that several commands have with the same help, in the order of the commands."""
    found: dict[str, list[click.Option]] = {}
    for _, command in commands():
        for each in command.params:
            if _is_own(each):
                found.setdefault(_shown(each), []).append(each)
    return {shown: named[0] for shown, named in found.items() if len(named) > 1}


def _only(common_option: click.Option) -> str:
    """Return which commands have a common option, if most of them don't."""
    has = [
        name
        for name, command in commands()
        if any(each.name == common_option.name and _is_common(each) and not _is_hidden(each) for each in command.params)
    ]
    return f" Only {', '.join(f'`{name}`' for name in has)}." if len(has) <= len([*commands()]) / 2 else ""


def _is_hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.hidden


def _is_own(parameter: click.Parameter) -> TypeGuard[click.Option]:
    return isinstance(parameter, click.Option) and not _is_hidden(parameter) and not _is_common(parameter)


def _is_common(parameter: click.Parameter) -> bool:
    of_all = _COMMON.get(parameter.name or "")
    return of_all is not None and isinstance(parameter, click.Option) and _shown(parameter) == _shown(of_all)


def _shown(option: click.Option) -> str:
    return f"{option.opts} {option.help} {option.type.to_info_dict()} {option.to_info_dict()['default']}"


def _usage(name: str, command: click.Command) -> list[str]:
    """Return the usage of a command with arguments; the example shows that of all others."""
    if command.epilog and not any(isinstance(each, click.Argument) for each in command.params):
        return []
    # Click keeps the option for help that it makes for the first context of a command.
    context = click.Context(command, **main.context_settings)
    return [" ".join(["topicledger", name, *command.collect_usage_pieces(context)]).replace(" [OPTIONS]", "")]


def _example(command: click.Command) -> list[str]:
    return [(command.epilog or "").removeprefix("Example: ")] if command.epilog else []


def _list(given: Sequence[click.Option]) -> list[str]:
    lines = []
    for each in given:
        names = ", ".join(f"`{name}`" for name in [*each.opts, *each.secondary_opts])
        if isinstance(each.type, click.Choice):
            names += f" {', '.join(f'`{choice}`' for choice in each.type.choices)}"
        elif not each.is_flag:
            names += f" `{each.make_metavar(click.Context(click.Command(None)))}`"
        lines.append(f"- {names}: {prose(_prose(each.help or ''))}{_default_of(each)}")
    return [*lines, ""]


def _default_of(option: click.Option) -> str:
    if option.required:
        return f" Required{f', unless `{option.envvar}` gives it' if option.envvar else ''}."
    default = option.to_info_dict()["default"]
    if option.is_flag or option.multiple or default is None or "efault" in (option.help or ""):
        return ""
    return f" Default: `{default}`."


def _prose(text: str) -> str:
    return " ".join(RULE_IDS.sub("", text).split())


_SECTIONS: Mapping[str, Sequence[Evaluated]] = {
    "create": (Action.CREATE,),
    "delete": (Action.DELETE,),
    "change": (*CHANGES, ReplicaAction.REASSIGN),
    **{
        names.resource_type: tuple(each for each in BUILT_IN if isinstance(each, names.actions))
        for names in NAMES
    },
}  # fmt: skip


def policy_list() -> str:
    """Return the built-in policies of each section of the settings, with their settings and defaults."""
    assert set(PolicySettings.__dataclass_fields__) & set(_SECTIONS), "sections are named as in the settings"
    lines: list[str] = []
    listed: dict[str, str] = {}
    for section, actions in _SECTIONS.items():
        named = {name: factory for action in actions for name, factory in BUILT_IN.get(action, {}).items()}
        rows = {name: f"{_settings(factory)}: {prose(policies_rule(factory))}" for name, factory in named.items()}
        again = [f"`{name}`" for name, row in rows.items() if listed.get(name) == row]
        lines += [f"## {section}", ""]
        lines += [
            f"- `{name}`{row}{_also(name) if section == 'create' else ''}"
            for name, row in rows.items()
            if listed.get(name) != row
        ]
        lines += ["", *([f"As above: {', '.join(again)}.", ""] if again else [])]
        listed |= rows
    lines += ["## Always on", "", "No setting turns these off:", ""]
    for action, always in ALWAYS.items():
        lines += [f"- `{name}` ({action}): {prose(policies_rule(each))}" for name, (each, _) in always.items()]
    return "\n".join([*lines, ""])


def policies_rule(factory: Factory) -> str:
    """Return the first paragraph of a policy's docstring."""
    return _prose((inspect.getdoc(factory) or "").split("\n\n")[0])


_ARTICLE = re.compile(r"\ban? ")


def _settings(factory: Factory) -> str:
    shown = "; ".join(map(_setting, options(factory)))
    return f" ({prose(shown)})" if shown else ""


def _setting(option: Option) -> str:
    words = (
        []
        if option.type is None
        else [_ARTICLE.sub("", type_name(option.type).replace("a list, each a string", "strings"))]
    )
    if not option.required:
        left_out = option.default in (None, ())
        words.append("optional" if left_out else f"default `{json.dumps(option.default, default=str)}`")
    return f"`{option.name}`: {', '.join(words)}"


def _also(name: str) -> str:
    if (also := ALSO.get(name)) is None:
        return ""
    changes = {"altered configs": also.alters is not None, "added partitions": also.growth, "moves": also.moves}
    return f" Also for {', '.join(each for each, holds in changes.items() if holds)}."


_OF_GUARD = re.compile(r"MAX_[A-Z_]+_EXCEEDED")
_GUARD_STOPPED = (
    "The run would do more on the cluster than [the guard](settings.md#guards) of this name allows, and does none of "
    "it. If it is intended, allow it for one plan: `runs approve --allow NAME=N`."
)


def error_list() -> str:
    """Return the exit codes of all commands, and every error of a topic or other resource with its advice."""
    lines = ["## Exit codes", ""]
    lines += [f"- {int(code)}, every command: {prose(meaning)}" for code, meaning in exits.OF_EVERY_COMMAND.items()]
    by_meaning: dict[tuple[ExitCode, str], list[str]] = {}
    for name, codes in exits.OF_COMMANDS.items():
        for code, meaning in codes.items():
            by_meaning.setdefault((code, meaning), []).append(f"`{name}`")
    for (code, meaning), named in sorted(by_meaning.items(), key=lambda each: each[0][0]):
        lines.append(f"- {int(code)}, {', '.join(named)}: {prose(meaning)}")
    lines += ["", "## Errors of topicledger", "", "Their `error_code` is -1. Each says what to do last.", ""]
    ours: Sequence[type[RefusalName]] = (Refusal, *(names.refusals for names in NAMES))
    for errors in ours:
        meanings = documented(errors)
        lines += [
            f"- {each.value}: {prose(meanings[each.name])} {prose(advice.OF_ERRORS[each])}"
            for each in errors
            if not _OF_GUARD.fullmatch(each.value)
        ]
    of_guards = [each.value for errors in ours for each in errors if _OF_GUARD.fullmatch(each.value)]
    lines.append(f"- {', '.join(of_guards)}: {_GUARD_STOPPED}")
    lines += [f"- {each.value}: {prose(text)} It is no error." for each, text in notes()]
    lines += ["", "## Errors of brokers", "", "The message in `audit` is the broker's.", ""]
    known = {each.value for errors in ours for each in errors}
    codes_of = {error_name(code): code for code in range(-1, _CODES)}
    for name, what in advice.OF_ERRORS.items():
        if name not in known:
            lines.append(f"- {name} ({codes_of[name]}): {prose(what)}")
    return "\n".join([*lines, ""])


def metric_list() -> str:
    """Return every metric with its labels and its text."""
    lines = []
    for name, (text, labels) in METRICS.items():
        also = f" (`{'`, `'.join(labels)}`)" if labels else ""
        lines.append(f"- `{name}`{also}: {prose(text)}")
    return "\n".join([*lines, ""])


def notes() -> Sequence[tuple[Note, str]]:
    """Return the notes in the column `error`, with their meanings."""
    meanings = documented(Note)
    return [(each, meanings[each.name]) for each in Note]


def documented(of: type[StrEnum]) -> Mapping[str, str]:
    """Return the docstring under each member of an enumeration."""
    (found,) = ast.parse(inspect.getsource(of)).body
    assert isinstance(found, ast.ClassDef)
    texts: dict[str, str] = {}
    for member, text in zip(found.body, found.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            (target,) = member.targets
            assert isinstance(target, ast.Name)
            texts[target.id] = _prose(str(text.value.value))
    return texts
