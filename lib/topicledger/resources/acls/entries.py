"""Read entries of `acls:` into rows of `acls`: ACLs as in the table, and shorthands for the needs of a client.

A shorthand becomes the ACLs that Kafka's own tool gives such a client, without those to create topics, since topics are
declared, too. A name that ends with `*` stands for all names with this prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topicledger.manifests.files import ResourceRow, variables
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.resource_entries import NOTHING, SHARED, Shared, given_in, shared
from topicledger.manifests.files.values import Object, Value, describe, filled, named
from topicledger.resources.acls.acl import (
    ALLOW,
    CLUSTER_NAME,
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    WILDCARD,
)
from topicledger.schemas import ACLS
from topicledger.text import first_of, listed, nearest, show

_KEY = ("principal", "permission", "operation", "resource_type", "pattern_type", "resource_name", "host")

_SHOWN_SHORTHANDS = 20
_SHOWN_RIGHTS = 8

FIELDS = (*_KEY, *SHARED)
"""The fields of an ACL, as in the table."""

Right = tuple[str, str, str]
"""Operation, resource type, name or `prefix*`."""


@dataclass(frozen=True, kw_only=True)
class _Shorthand:
    """The ACLs that a kind of client needs."""

    lists: tuple[str, ...]
    """Fields that are a name or a list of names."""
    flags: tuple[str, ...] = ()
    """Fields that are true or false."""
    needed: tuple[str, ...] = ()
    """Required fields."""
    prefixes: tuple[str, ...] = ()
    """Lists whose names stand for prefixes, also without `*`."""
    rights: Callable[[Mapping[str, Sequence[str]], Mapping[str, bool]], Iterator[Right]]


def _each(operations: Sequence[str], resource_type: str, names: Sequence[str]) -> Iterator[Right]:
    return ((operation, resource_type, name) for name in names for operation in operations)


def _consumer(names: Mapping[str, Sequence[str]], _: Mapping[str, bool]) -> Iterator[Right]:
    yield from _each(("READ", "DESCRIBE"), "TOPIC", names["topics"])
    yield from _each(("READ",), "GROUP", names["groups"])


def _producer(names: Mapping[str, Sequence[str]], flags: Mapping[str, bool]) -> Iterator[Right]:
    yield from _each(("WRITE", "DESCRIBE"), "TOPIC", names["topics"])
    yield from _each(("WRITE", "DESCRIBE"), "TRANSACTIONAL_ID", names["transactional_id"])
    if flags["idempotent"]:
        # Brokers before 2.8 require it; later ones accept WRITE on any topic.
        yield from _each(("IDEMPOTENT_WRITE",), "CLUSTER", (CLUSTER_NAME,))


def _streams(names: Mapping[str, Sequence[str]], _: Mapping[str, bool]) -> Iterator[Right]:
    yield from _each(("READ", "DESCRIBE"), "TOPIC", names["inputs"])
    yield from _each(("WRITE", "DESCRIBE"), "TOPIC", names["outputs"])
    for application in names["application_id"]:
        # The application creates and deletes its own changelog and repartition topics.
        own = f"{application.removesuffix(WILDCARD)}{WILDCARD}"
        yield from _each(("ALL",), "TOPIC", (own,))
        yield from _each(("READ", "DESCRIBE", "DELETE"), "GROUP", (own,))
        yield from _each(("WRITE", "DESCRIBE"), "TRANSACTIONAL_ID", (own,))


def _connect(names: Mapping[str, Sequence[str]], _: Mapping[str, bool]) -> Iterator[Right]:
    yield from _each(("READ", "DESCRIBE"), "GROUP", names["group"])
    yield from _each(("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"), "TOPIC", names["internal"])
    yield from _each(("READ", "DESCRIBE"), "TOPIC", names["reads"])
    if names["reads"]:
        # A sink's consumer is in the group `connect-NAME`.
        yield from _each(("READ", "DESCRIBE"), "GROUP", ("connect-*",))
    yield from _each(("WRITE", "DESCRIBE"), "TOPIC", names["writes"])


SHORTHANDS: Mapping[str, _Shorthand] = {
    "consumer": _Shorthand(lists=("topics", "groups"), needed=("topics", "groups"), rights=_consumer),
    "producer": _Shorthand(
        lists=("topics", "transactional_id"), flags=("idempotent",), needed=("topics",), rights=_producer
    ),
    "streams": _Shorthand(
        lists=("application_id", "inputs", "outputs"),
        needed=("application_id",),
        prefixes=("application_id",),
        rights=_streams,
    ),
    "connect": _Shorthand(
        lists=("group", "internal", "reads", "writes"), needed=("group", "internal"), rights=_connect
    ),
}


def schemas() -> Mapping[str, Mapping[str, object]]:
    """Return the JSON Schemas of shorthands, and of fields with few values."""
    operations = sorted({"ALL", *(each for known in OPERATIONS.values() for each in known)})
    few = {
        "permission": PERMISSIONS,
        "operation": operations,
        "resource_type": [*OPERATIONS],
        "pattern_type": PATTERN_TYPES,
    }
    found: dict[str, Mapping[str, object]] = {
        name: {"anyOf": [{"enum": [*values, None]}, variables.SCHEMA]} for name, values in few.items()
    }
    text = {"type": "string", "minLength": 1}
    texts = {"type": "array", "items": text}
    for name, shorthand in SHORTHANDS.items():
        needed = ("principal", *shorthand.needed)
        fields: dict[str, Mapping[str, object]] = {
            **dict.fromkeys(("principal", "host"), text),
            **{
                each: {"anyOf": [text, {**texts, "minItems": 1} if each in needed else texts]}
                for each in shorthand.lists
            },
            **{each: {"anyOf": [{"type": "boolean"}, variables.SCHEMA]} for each in shorthand.flags},
        }
        fields |= {each: {"anyOf": [field, {"type": "null"}]} for each, field in fields.items() if each not in needed}
        found[name] = {"type": "object", "properties": fields, "required": [*needed], "additionalProperties": False}
    return found


def is_acl(item: Object) -> bool:
    """Whether an entry is an ACL rather than a topic."""
    names = item.names
    return "topic" not in names and not names.isdisjoint({"principal", "operation", *SHORTHANDS})


def read_acl(
    item: Object, line: int, reader: Reader, cluster: str | None = None, defaults: Mapping[str, object] = NOTHING
) -> None:
    """Report the rows of one entry, which begins at `line`."""
    item.line = line
    given = given_in(item)
    kinds = [name for name in SHORTHANDS if name in given]
    entry = shared(given, item, reader, cluster, defaults)
    known = (*_KEY, *SHARED) if not kinds else (kinds[0], *SHARED)
    for name, (_, at) in given.items():
        if name not in known:
            message = f"unknown field `{named(name)}`; {nearest(name, (*known, *SHORTHANDS))}"
            if name in kinds:
                message = f"`{kinds[0]}` and `{name}` exclude each other; write two entries"
            reader.report.error(at, message)
            entry.right = False
    if kinds:
        _shorthand(kinds[0], *given[kinds[0]], entry, item.line, reader)
        return
    acl = dict(ACLS.key_defaults)
    for name in _KEY:
        value, at = given.get(name, (None, item.line))
        text = None if value is None else reader.text(name, value, at)
        entry.right &= text is not None or value is None
        if text is not None:
            acl[name] = text
        elif name not in acl and value is None:
            reader.report.error(item.line, f"`{name}` is missing")
            entry.right = False
    _row(reader, entry, acl, item.line)


def _shorthand(kind: str, value: Value, line: int, entry: Shared, at_entry: int, reader: Reader) -> None:
    shorthand = SHORTHANDS[kind]
    known = ("principal", "host", *shorthand.lists, *shorthand.flags)
    if not isinstance(value, Object):
        reader.report.error(line, f"`{kind}` must be a mapping with {', '.join(known)}, not {describe(value)}")
        return
    entry.right &= not reader.duplicates(value, line)
    reader.visit(len(value.pairs))
    names: dict[str, Sequence[str]] = dict.fromkeys(shorthand.lists, ())
    flags = dict.fromkeys(shorthand.flags, False)
    texts: dict[str, str | None] = {"principal": None, "host": WILDCARD}
    for key, item, key_line in value.pairs:
        name, at = key.text, key_line or line
        if name not in known:
            reader.report.error(at, f"unknown field `{named(name)}` of `{kind}`; {nearest(name, known)}")
            entry.right = False
        elif item is None:
            continue
        elif name in flags:
            flags[name] = filled(item) is True
            if not isinstance(filled(item), bool):
                reader.report.error(at, f"`{name}` must be true or false")
                entry.right = False
        elif name in names:
            names[name] = _names(name, item, at, reader, entry, only_prefixes=name in shorthand.prefixes)
        else:
            texts[name] = reader.text(name, item, at)
            entry.right &= texts[name] is not None
    missing = [name for name in shorthand.needed if not names[name]]
    missing += [] if texts["principal"] is not None else ["principal"]
    if entry.right and missing:
        reader.report.error(line, f"`{kind}` needs {' and '.join(f'`{name}`' for name in missing)}")
        entry.right = False
    for operation, resource_type, name in shorthand.rights(names, flags):
        acl = {"principal": str(texts["principal"]), "host": str(texts["host"]), "permission": ALLOW}
        _row(
            reader,
            entry,
            {**acl, "operation": operation, "resource_type": resource_type, **pattern_of(name)},
            at_entry,
            kind,
        )


def _names(
    name: str, value: Value, line: int, reader: Reader, entry: Shared, *, only_prefixes: bool = False
) -> Sequence[str]:
    """Return names; report those that aren't text, and the empty ones, whose prefix would be that of all names."""
    items = value if isinstance(value, list) else [value]
    reader.visit(len(items))
    found = []
    for each in items:
        text = reader.text(name, each, line)
        if text == "":
            reader.report.error(line, f"`{name}` has an empty name")
        elif text == WILDCARD and only_prefixes:
            reader.report.error(line, f"`{name}` is {WILDCARD}, which stands for every name; write a name or a prefix")
        elif text is not None:
            found.append(text)
    entry.right &= len(found) == len(items)
    return found


def pattern_of(name: str) -> dict[str, str]:
    """Return the pattern type and resource name that a name or `prefix*` stands for."""
    if name == WILDCARD or not name.endswith(WILDCARD):
        return {"pattern_type": LITERAL, "resource_name": name}
    return {"pattern_type": PREFIXED, "resource_name": name.removesuffix(WILDCARD)}


def _row(reader: Reader, entry: Shared, acl: Mapping[str, str], line: int, shorthand: str | None = None) -> None:
    if entry.right:
        reader.report.resource("acls", entry.row({name: acl[name] for name in _KEY}, reader, line, shorthand))


def expansions(rows: Sequence[ResourceRow]) -> list[str]:
    """Return lines for the terminal with the expansions of the first shorthands, and the number of the others."""
    by_entry: dict[tuple[str, int, str], list[ResourceRow]] = {}
    for row in rows:
        if row.shorthand is not None:
            by_entry.setdefault((row.file, row.line, row.shorthand), []).append(row)
    lines = []
    for (file, line, shorthand), those in list(by_entry.items())[:_SHOWN_SHORTHANDS]:
        rights = [f"{row.values['operation']} {row.values['resource_type']} {_shown(row.values)}" for row in those]
        shown = listed(list(map(show, rights)), most=_SHOWN_RIGHTS)
        lines.append(f"{show(file)}:{line}: {shorthand} {show(str(those[0].values['principal']))}: {shown}")
    if len(by_entry) > _SHOWN_SHORTHANDS:
        lines.append(f"{first_of(_SHOWN_SHORTHANDS, len(by_entry))} shorthands")
    return lines


def _shown(acl: Mapping[str, object]) -> str:
    """Return a name, or a prefix with a star; say so if a star belongs to the name."""
    name = str(acl["resource_name"])
    if acl["pattern_type"] == PREFIXED:
        return f"{name}*"
    return f"{name} (LITERAL)" if name.endswith(WILDCARD) and name != WILDCARD else name
