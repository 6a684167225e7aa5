"""The JSON Schema of manifest files, for editors and checks before a load.

Generated from the tables, the kinds of resources and the catalogue of topic configs, so that none of them is written
twice. A schema can't check everything that a load checks: clusters of the settings, rows together, and duplicate keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from pyspark.sql.types import DataType, DoubleType, IntegerType, MapType, StringType

from topicledger.files.documents import DEFAULT_FIELDS, OVERRIDABLE, SECTIONS
from topicledger.manifests.files import variables
from topicledger.manifests.files.overriding import CLUSTERS, FIXED, OVERRIDES
from topicledger.manifests.files.results import FIELDS
from topicledger.manifests.row_rules import ABSENT, MAX_TOPIC_LENGTH, PRESENT
from topicledger.model import INTERNAL_TOPICS, placement
from topicledger.model.config_texts import MAXIMA, UNITS
from topicledger.model.topic_configs import TopicConfig, topic_configs
from topicledger.resources.kind import ResourceKind
from topicledger.schemas import MANIFESTS, Table

JsonSchema: TypeAlias = dict[str, Any]

_VARIABLE: JsonSchema = dict(variables.SCHEMA)
_SCALAR: JsonSchema = {"type": ["string", "number", "boolean"]}
_NAMED: JsonSchema = {"type": "object", "required": ["cluster"], "properties": {"cluster": {"type": "string"}}}
_NAME: JsonSchema = {"type": "string", "minLength": 1}
_TEXTS: JsonSchema = {"type": "object", "additionalProperties": _SCALAR}
_SCALAR_OR_NULL: JsonSchema = {"type": ["string", "number", "boolean", "null"]}
_CONFIGS: JsonSchema = {"$ref": "#/$defs/topic-configs"}
_OVERRIDDEN: JsonSchema = {"$ref": "#/$defs/overridden-configs"}
_BLANK = r"[\x00-\x20]*"
_LEGAL = "[a-zA-Z0-9._-]"
_PATTERNS = {"placement": placement.LEGAL, "replaces": f"{_LEGAL}+"}
_CONFIG_NAME: JsonSchema = {"pattern": "^[!-~]+$"}
_FEW = 2
"""A limit down to -2 names its negative numbers."""
_MOST = {"num_partitions": 2**31 - 1, "replication_factor": 2**15 - 1}


def manifest_schema() -> JsonSchema:
    """Return the schema of a YAML document, of a JSON file, or of a line of JSON."""
    entries = {name: f"#/$defs/{name}-entry" for name in ("topics", *SECTIONS)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifests of topicledger",
        "anyOf": [
            {"$ref": "#/$defs/document"},
            {"type": "array", "items": {"$ref": "#/$defs/flat-entry"}},
            {"$ref": "#/$defs/flat-entry"},
            {"type": "null"},
        ],
        "$defs": {
            "document": _document(entries),
            "flat-entry": {
                "anyOf": [{"$ref": each} for each in entries.values()],
                "oneOf": [_NAMED, {"required": [CLUSTERS]}],
            },
            "topics-entry": {**_entry(_fields(MANIFESTS, FIELDS)), "required": ["topic"]},
            **{f"{name}-entry": _of_kind(kind) for name, kind in SECTIONS.items()},
            "topic-configs": _configs(),
            "overridden-configs": _overridden_configs(),
        },
    }


def _document(entries: Mapping[str, str]) -> JsonSchema:
    defaults = {name: each for name, each in _fields(MANIFESTS, FIELDS).items() if name in DEFAULT_FIELDS}
    changed = {name: each for name, each in defaults.items() if name != "cluster"}
    overridable = {name: each for name, each in _fields(MANIFESTS, FIELDS).items() if name in OVERRIDABLE}
    lists = {name: {"type": ["array", "null"], "items": {"$ref": each}} for name, each in entries.items()}
    return {
        "type": "object",
        "properties": {
            **_clusters(),
            "defaults": _object({**defaults, OVERRIDES: _overrides(changed)}, or_null=True),
            OVERRIDES: _overrides(overridable),
            **lists,
        },
        "additionalProperties": False,
        "not": {
            "anyOf": [
                {**_NAMED, "required": ["cluster", CLUSTERS]},
                {"required": ["cluster", "defaults"], "properties": {**_NAMED["properties"], "defaults": _NAMED}},
                {"required": [CLUSTERS, "defaults"], "properties": {"defaults": _NAMED}},
            ]
        },
        "anyOf": [{"required": [name]} for name in lists],
    }


def _entry(fields: Mapping[str, JsonSchema]) -> JsonSchema:
    changed = {name: each for name, each in fields.items() if name not in FIXED}
    return {
        **_object({**fields, **_clusters(), OVERRIDES: _overrides(changed)}),
        "not": {**_NAMED, "required": ["cluster", CLUSTERS]},
    }


def _of_kind(kind: ResourceKind) -> JsonSchema:
    fields = _fields_of(kind)
    shorthands = [name for name in kind.entries.schemas() if name not in kind.entries.fields]
    needed = {name: {"required": fields[name].pop("required")} for name in shorthands}
    columns = [name for name in kind.entries.columns_needed if name != "cluster"]
    # Without required columns, any of the table's own fields makes an entry.
    groups = [columns] if columns else [[name] for name in kind.entries.fields if name in _own(kind)]
    one: list[JsonSchema] = [{"required": each, "properties": dict.fromkeys(each, _NAME)} for each in groups]
    one += [{"required": [name]} for name in shorthands]
    complete = {("oneOf" if columns else "anyOf"): one, **({"properties": needed} if needed else {})}
    # Overrides may complete an entry.
    return {**_entry(fields), "anyOf": [{"required": [OVERRIDES]}, complete]}


def _clusters() -> dict[str, JsonSchema]:
    return {
        "cluster": {"type": ["string", "null"], "description": "a name from the run settings"},
        CLUSTERS: {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "uniqueItems": True,
            "description": "several clusters in place of `cluster`",
        },
    }


def _overrides(fields: Mapping[str, JsonSchema]) -> JsonSchema:
    return {
        "type": ["object", "null"],
        "description": "fields that are different on a cluster, by cluster",
        "additionalProperties": _object({name: _unsetting(each) for name, each in fields.items()}, or_null=True),
    }


def _unsetting(field: JsonSchema) -> JsonSchema:
    """Return the schema of a field in an override: null removes a config or a label."""
    if field.get("additionalProperties") == _SCALAR:
        return {**field, "additionalProperties": _SCALAR_OR_NULL}
    if _CONFIGS in field.get("anyOf", ()):
        return {**field, "anyOf": [_OVERRIDDEN if each == _CONFIGS else each for each in field["anyOf"]]}
    return field


def _object(fields: Mapping[str, JsonSchema], *, or_null: bool = False) -> JsonSchema:
    types = ["object", "null"] if or_null else "object"
    return {"type": types, "properties": dict(fields), "additionalProperties": False}


def _fields(table: Table, names: Collection[str]) -> dict[str, JsonSchema]:
    """Return the schemas of fields that are columns of a table, with its comments."""
    found = {}
    for column in table.schema:
        if column.name in names:
            comment = {"description": column.metadata["comment"]} if "comment" in column.metadata else {}
            found[column.name] = {**_field(table, column.name, column.dataType), **comment}
    return found


def _field(table: Table, name: str, of_type: DataType) -> JsonSchema:
    if name == "state":
        return {"anyOf": [{"enum": [PRESENT, ABSENT, None]}, _VARIABLE]}
    if name == "topic":
        topic = {"type": "string", "pattern": f"^{_LEGAL}{{1,{MAX_TOPIC_LENGTH}}}$"}
        return {"anyOf": [{**topic, "not": {"enum": [".", "..", *sorted(INTERNAL_TOPICS)]}}, _VARIABLE]}
    if name in _PATTERNS:
        return {"anyOf": [{"type": "string", "pattern": f"^({_PATTERNS[name]})$"}, _VARIABLE, {"type": "null"}]}
    if name == "assignments":
        broker = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAXIMA["int"]}, _VARIABLE]}
        brokers = {"type": "array", "items": broker, "minItems": 1, "uniqueItems": True}
        return {
            "type": ["object", "null"],
            "patternProperties": {"^(0|[1-9][0-9]*)$": brokers},
            "additionalProperties": False,
            "minProperties": 1,
        }
    if name == "configs" and table is MANIFESTS:
        return {"anyOf": [_CONFIGS, {"type": "null"}]}
    if isinstance(of_type, MapType):
        return {**_TEXTS, "type": ["object", "null"]}
    if isinstance(of_type, IntegerType):
        return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": _MOST[name]}, _VARIABLE, {"type": "null"}]}
    if isinstance(of_type, DoubleType):
        return {"anyOf": [{"type": "number"}, _VARIABLE, {"type": "null"}]}
    if isinstance(of_type, StringType):
        return {"type": ["string", "null"]}
    raise TypeError(f"column {name} of {table.name}: no JSON Schema for {of_type}")


def _fields_of(kind: ResourceKind) -> dict[str, JsonSchema]:
    fields = _fields(kind.table, kind.entries.fields)
    return {**fields, **{name: {**fields.get(name, {}), **schema} for name, schema in kind.entries.schemas().items()}}


def _own(kind: ResourceKind) -> Collection[str]:
    return [name for name in kind.table.key if name != "cluster"]


def _configs() -> JsonSchema:
    return {
        "type": "object",
        "properties": {name: _config(each) for name, each in topic_configs().items()},
        "propertyNames": _CONFIG_NAME,
        "additionalProperties": _SCALAR,
    }


def _overridden_configs() -> JsonSchema:
    names = {name: {"$ref": f"#/$defs/topic-configs/properties/{name}"} for name in topic_configs()}
    return {
        "type": "object",
        "properties": {name: {"anyOf": [each, {"type": "null"}]} for name, each in names.items()},
        "propertyNames": _CONFIG_NAME,
        "additionalProperties": _SCALAR_OR_NULL,
    }


def _config(config: TopicConfig) -> JsonSchema:
    until = "" if config.until is None else f" until {config.until}"
    about = f"{config.words}; default {config.default or 'empty'}; since Kafka {config.since}{until}"
    return {"description": about, "anyOf": [*_values(config), _VARIABLE]}


def _values(config: TopicConfig) -> list[JsonSchema]:
    accepted = config.accepted
    if config.type == "boolean":
        return [{"type": "boolean"}, _text("[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]")]
    if config.type in ("int", "long"):
        most = MAXIMA[config.type] if accepted.most is None else accepted.most
        least = -MAXIMA[config.type] - 1 if accepted.least is None else accepted.least
        number: JsonSchema = {"type": "integer", "minimum": least, "maximum": most}
        also = [{"const": int(each)} for each in accepted.also]
        units = "" if config.unit is None else f"|[0-9]+(\\.[0-9]+)?({'|'.join(UNITS[config.unit])})"
        # A pattern can't compare numbers; it leaves out negative ones that are too low.
        negative = [f"-0*{-each}" for each in range(least, 0)] if least >= -_FEW else ["-[0-9]+"]
        negative += ["-0+"] if least <= 0 else []
        negative += [each for each in accepted.also if each.startswith("-")]
        return [number, *also, _text("|".join([f"[+]?[0-9]+{units}", *negative]))]
    if config.type == "double":
        number = {"type": "number"}
        number |= {} if accepted.least is None else {"minimum": accepted.least}
        number |= {} if accepted.most is None else {"maximum": accepted.most}
        return [number, _text(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")]
    if accepted.pattern is not None:
        # YAML reads a version as a number, whose text is stored.
        numbers: list[JsonSchema] = [{"type": "number"}] if config.type == "string" else []
        return [_text(accepted.pattern), *numbers]
    if accepted.values:
        one = "|".join(each.replace(".", "\\.") for each in accepted.values)
        of_list = f"({_BLANK}({one}){_BLANK}(,{_BLANK}({one}){_BLANK})*)?"
        return [_text(of_list if config.type == "list" else one)]
    return [_SCALAR]


def _text(pattern: str) -> JsonSchema:
    """Return the schema of a text, which may have blanks around it as in Java."""
    return {"type": "string", "pattern": f"^{_BLANK}({pattern}){_BLANK}$"}
