"""Read the settings file and check all of it: every problem is reported at once, with its key."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import cast

from topicledger.config.clusters import read_clusters
from topicledger.config.guards import MAX_APPROVALS, OF_KINDS, GuardSettings, read_approvals
from topicledger.config.notify import read_notify
from topicledger.config.ownership import read_owners
from topicledger.config.principals import read_principals
from topicledger.config.proof import read_proof
from topicledger.config.roots import root_as
from topicledger.config.scope import read_scope
from topicledger.config.settings import (
    MAX_BATCH_RECORDS,
    OF_EVERY_POLICY,
    AuditSettings,
    ChangeSettings,
    ConfigChanges,
    KafkaSettings,
    Mode,
    Needs,
    PartitionChanges,
    PolicyScope,
    PolicySettings,
    PolicySpec,
    Recreated,
    ReplicaChanges,
    ReplicaSettings,
    Settings,
    TablesSettings,
    Undeclared,
    WhoObserves,
)
from topicledger.config.severities import IGNORE, SEVERITIES, Severity
from topicledger.config.spark import read_spark
from topicledger.config.toml_table import TomlTable
from topicledger.config.views import read_views
from topicledger.errors import SettingsError
from topicledger.kinds import NAMES
from topicledger.model.prune import MAX_DAYS
from topicledger.model.topic_configs import misspelt
from topicledger.naming import Section, Sections
from topicledger.text import nearest, show

_SECTIONS = [names.section for names in NAMES if names.section is not None]


def load_settings(path: Path) -> Settings:
    """Read and check ``path``; raises one SettingsError that lists every problem of the file, one per line."""
    settings, problems = read_settings(path)
    if problems:
        raise problems_of(path, problems)
    return settings


def problems_of(path: Path, problems: Iterable[str]) -> SettingsError:
    """Return one error that lists the problems of a settings file, one per line."""
    return SettingsError("\n".join(f"{path}: {problem}" for problem in problems))


def read_settings(path: Path) -> tuple[Settings, Sequence[str]]:
    """Read ``path``; return its settings, with placeholders for invalid values, and its problems.

    Raises SettingsError if the file isn't TOML.
    """
    raw = _read_toml(path)
    problems: list[str] = []
    top = TomlTable("", raw, problems)
    top.only(
        "tables",
        "spark",
        "clusters",
        "kafka",
        "changes",
        "scope",
        "replicas",
        *(section.table for section in _SECTIONS),
        "guards",
        "policies",
        "audit",
        "owners",
        "proof",
        "notify",
        "views",
    )
    clusters = top.table("clusters")
    settings = Settings(
        path=path,
        tables=_tables(top.table("tables")),
        spark=read_spark(top.table("spark")),
        clusters=read_clusters(clusters, problems),
        kafka=_kafka(top.table("kafka")),
        changes=_changes(top.table("changes"), clusters),
        scope=read_scope(top.table("scope")),
        replicas=_replicas(top.table("replicas")),
        of_kinds=Sections(_of_kinds(top)),
        guards=_guards(top.table("guards")),
        policies=_policies(top.table("policies", "written as [[policies.create]] or another kind"), clusters.values),
        audit=_audit(top.table("audit")),
        proof=read_proof(top.table("proof")),
        owners=read_owners(top.table("owners"), path, clusters.values),
        notify=read_notify(raw, problems),
        views=read_views(top.table("views")),
    )
    return settings, problems


def _read_toml(path: Path) -> dict[str, object]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file; name the settings file with --config") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: is a folder, not a settings file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: not UTF-8: save it as UTF-8") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


def _tables(table: TomlTable) -> TablesSettings:
    table.only("root", "root_is", "single_writer", "on_create")
    if "root" not in table.values:
        table.problem("root", "is missing: a path or `catalog.schema` for the Delta tables")
    root, kind = table.text("root") or "", table.choice("root_is", TablesSettings.root_is, "auto", "path", "catalog")
    try:
        root = root_as(kind, root)
    except ValueError as error:
        table.problem("root", str(error))
    statements = table.texts("on_create")
    if any("{table}" not in each for each in statements):
        table.problem("on_create", "must have `{table}`, the name of the table, in each statement")
    return TablesSettings(root=root, root_is=kind, single_writer=table.flag("single_writer"), on_create=statements)


def _kafka(table: TomlTable) -> KafkaSettings:
    table.only("connect_timeout", "operation_timeout", "max_batch_records", "observe")
    return KafkaSettings(
        connect_timeout=table.seconds("connect_timeout", KafkaSettings.connect_timeout),
        operation_timeout=table.seconds(
            "operation_timeout",
            KafkaSettings.operation_timeout,
            ": otherwise the broker answers REQUEST_TIMED_OUT for every topic, and the outcome stays unknown",
        ),
        max_batch_records=table.integer(
            "max_batch_records",
            KafkaSettings.max_batch_records,
            1,
            MAX_BATCH_RECORDS,
            ": a broker refuses a larger request whole",
        ),
        observe=cast(WhoObserves, table.choice("observe", KafkaSettings.observe, "auto", "driver", "executors")),
    )


def _guards(table: TomlTable) -> GuardSettings:
    table.only(*(each.name for each in fields(GuardSettings) if each.name != "of_kinds"), *OF_KINDS)
    return GuardSettings(
        max_deletes=table.integer("max_deletes", GuardSettings.max_deletes, 0, 2**31 - 1),
        max_changes=table.integer("max_changes", 0, 0, 2**31 - 1) if "max_changes" in table.values else None,
        max_losses=table.integer("max_losses", GuardSettings.max_losses, 0, 2**31 - 1),
        max_disruptions=table.integer("max_disruptions", GuardSettings.max_disruptions, 0, 2**31 - 1),
        max_moves=table.integer("max_moves", GuardSettings.max_moves, 0, 2**31 - 1),
        max_plan_age=table.seconds("max_plan_age", GuardSettings.max_plan_age),
        of_kinds={name: most for name in OF_KINDS if (most := table.integer(name, 0, 0, 2**31 - 1))},
        max_removed_rows=table.integer("max_removed_rows", GuardSettings.max_removed_rows, 0, 2**31 - 1),
        approvals=table.integer("approvals", GuardSettings.approvals, 0, MAX_APPROVALS),
        approvals_for=read_approvals(table.table("approvals_for")),
    )


def _changes(table: TomlTable, clusters: TomlTable) -> Mapping[str, ChangeSettings]:
    """Read [changes] and [clusters.NAME.changes], which overrides it; only clusters that differ from the defaults."""
    found = {}
    everywhere = _change_settings(table, ChangeSettings())
    for name, cluster in clusters.values.items():
        of_cluster = cluster.get("changes") if isinstance(cluster, dict) else None
        given = (
            everywhere if of_cluster is None else _change_settings(clusters.table(name).table("changes"), everywhere)
        )
        if given != ChangeSettings():
            found[name] = given
    return found


def _change_settings(table: TomlTable, default: ChangeSettings) -> ChangeSettings:
    table.only("configs", "partitions", "replicas", "undeclared", "replaced_idle_days", "pin", "ignore")
    ignore = table.values.get("ignore", list(default.ignore))
    if not isinstance(ignore, list) or not all(isinstance(each, str) and each.split() == [each] for each in ignore):
        table.problem("ignore", "must be a list of names of configs, without blanks")
        ignore = []
    for name in ignore:
        if hint := misspelt(name):
            table.problem("ignore", f"names unknown config `{show(name)}`; {hint}")
    return ChangeSettings(
        configs=cast(ConfigChanges, table.choice("configs", default.configs, "off", "declared", "exact")),
        partitions=cast(PartitionChanges, table.choice("partitions", default.partitions, "off", "grow")),
        replicas=cast(ReplicaChanges, table.choice("replicas", default.replicas, "off", "on")),
        undeclared=cast(Undeclared, table.choice("undeclared", default.undeclared, "keep", "delete")),
        replaced_idle_days=table.integer("replaced_idle_days", 1, 1, MAX_DAYS)
        if "replaced_idle_days" in table.values
        else default.replaced_idle_days,
        pin=table.flag("pin", default.pin),
        # A throttle outlives its move, so no run may reset the lists that a move set.
        ignore=tuple(dict.fromkeys((*ChangeSettings.ignore, *ignore))),
    )


def _replicas(table: TomlTable) -> ReplicaSettings:
    default = ReplicaSettings
    table.only("throttle", "max_partitions_per_broker", "max_bytes_per_broker")
    return ReplicaSettings(
        throttle=table.integer("throttle", default.throttle, 0, 2**62),
        max_partitions_per_broker=table.integer(
            "max_partitions_per_broker", default.max_partitions_per_broker, 1, 10_000
        ),
        max_bytes_per_broker=table.integer("max_bytes_per_broker", default.max_bytes_per_broker, 1, 2**62),
    )


def _of_kinds(top: TomlTable) -> Iterator[Section]:
    for section in _SECTIONS:
        table, names = top.table(section.table), [each.name for each in fields(section)]
        table.only(*names)
        section_of: Callable[..., Section] = section
        yield section_of(**{name: _texts_of(section, table, name) for name in names})


def _texts_of(section: type[Section], table: TomlTable, name: str) -> tuple[str, ...]:
    if name in section.patterns:
        return table.patterns(name)
    return read_principals(table, name) if name in section.principals else table.texts(name)


def _audit(table: TomlTable) -> AuditSettings:
    table.only("require_owner", "owners", "max_replica_skew", "usage", "severity")
    require_owner = table.flag("require_owner")
    given = table.table("severity")
    given.only(*SEVERITIES)
    severity = dict(SEVERITIES)
    for name in SEVERITIES:
        text = given.text(name)
        if text == IGNORE:
            del severity[name]
        elif text in tuple(Severity):
            severity[name] = Severity(text)
        elif text is not None:
            given.problem(name, f'must be one of {", ".join((*Severity, IGNORE))}, not "{show(text)}"')
    skew = table.integer("max_replica_skew", 0, 1, 2**31 - 1) if "max_replica_skew" in table.values else None
    return AuditSettings(
        require_owner=require_owner,
        owners=table.texts("owners"),
        max_replica_skew=skew,
        usage=table.flag("usage"),
        severity=severity,
    )


def _policies(table: TomlTable, clusters: Iterable[str]) -> PolicySettings:
    kinds = [each.resource_type for each in NAMES]
    of_topics = [each.name for each in fields(PolicySettings) if each.name not in ("of_kinds", "recreated")]
    table.only(*of_topics, *kinds, "recreated")
    recreated = cast(Recreated, table.choice("recreated", PolicySettings.recreated, "refuse", "exempt"))
    found = {name: _policy_list(table, name, clusters) for name in (*of_topics, *kinds)}
    of_kinds = {name: found[name] for name in kinds if found[name]}
    return PolicySettings(of_kinds=of_kinds, recreated=recreated, **{name: found[name] for name in of_topics})


def _policy_list(table: TomlTable, kind: str, clusters: Iterable[str]) -> tuple[PolicySpec, ...]:
    value = table.values.get(kind, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        table.problem(kind, f"must be a list of tables: write [[{table.key(kind)}]] above each policy")
        return ()
    specs = []
    for number, item in enumerate(value, start=1):
        where = f"{table.key(kind)}[{number}]"
        policy = TomlTable(where, item, table.problems)
        if "use" not in item:
            policy.problem("use", "is missing: a built-in policy or `package.module:factory`")
        mode = item.get("mode", "refuse")
        if mode not in ("refuse", "warn"):
            policy.problem("mode", 'must be "refuse" or "warn"')
        needs = item.get("needs")
        if needs not in (None, "full", "visible"):
            policy.problem("needs", 'must be "full" or "visible"')
        scope = policy.choice("scope", "changes", "changes", "all") if "scope" in item else None
        named = policy.texts("clusters")
        for name in named:
            if name not in clusters:
                policy.problem("clusters", f"names unknown cluster `{show(name)}`; {nearest(name, clusters)}")
        specs.append(
            PolicySpec(
                use=policy.text("use") or "",
                mode=cast(Mode, mode),
                needs=cast(Needs | None, needs),
                scope=cast(PolicyScope | None, scope),
                clusters=named,
                owners=policy.texts("owners"),
                labels=policy.text_values("labels"),
                options={key: each for key, each in item.items() if key not in OF_EVERY_POLICY},
                where=where,
            )
        )
    return tuple(specs)
