"""The run settings: one TOML file, checked as a whole before anything else happens.

Secrets are never read here: a cluster's client options hold references (`env:NAME`, `file:PATH`), see `secrets`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, cast

from topicledger.errors import SettingsError, UsageError
from topicledger.model import DriftKind, Severity
from topicledger.text import nearest, show

ClientValue: TypeAlias = str | int | float | bool | tuple[int, ...]
Mode: TypeAlias = Literal["refuse", "warn"]
Needs: TypeAlias = Literal["full", "visible"]

MAX_BATCH_RECORDS = 10_000
"""What a broker takes in one request before it refuses it whole (C15)."""

_MAX_TIMEOUT_SECONDS = 2_147_483.0  # Kafka counts milliseconds in an int32

SECRET_OPTIONS = frozenset({"sasl_plain_password", "ssl_password"})
_PROXY_OPTIONS = frozenset({"proxy_url", "socks5_proxy"})
_INTEGER_OPTIONS_WITHOUT_DEFAULT = frozenset({"receive_buffer_bytes", "send_buffer_bytes"})
_FOREIGN_OPTIONS = {
    "bootstrap_servers": "it belongs one level up, beside `client`",
    "selector": "it takes a Python object, which TOML can't express",
    "kafka_client": "it takes a Python object, which TOML can't express",
    "ssl_context": "it takes a Python object, which TOML can't express; use the ssl_* file options",
    "socket_options": "it takes Python constants, which TOML can't express",
    "metric_reporters": "topicledger keeps no client metrics",
    "metrics_num_samples": "topicledger keeps no client metrics",
    "metrics_sample_window_ms": "topicledger keeps no client metrics",
}

OF_EVERY_POLICY = ("use", "mode", "needs", "clusters", "owners", "labels")
"""Keys of any [[policies.*]]; the others are settings of the policy that it uses."""

_REFERENCE = re.compile(r"(?:env|file):")
_URL_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*:[^/?#\s]*@")
_FACTORY = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_SERVER = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True)
class TablesSettings:
    """Where the Delta tables are."""

    root: str
    """A path (local, `s3a:`, `abfss:`, `gs:`) with a folder per table, or `catalog.schema`. A relative local path is
    relative to the current working directory, not to the settings file."""
    single_writer: bool = False
    """Set it only where never more than one command runs at a time: then `apply` and `provision` accept tables on S3
    without a LogStore for several drivers."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """How to reach one cluster.

    Goes to Spark executors as JSON, references unresolved.
    """

    name: str
    """The name that manifests use."""
    bootstrap_servers: tuple[str, ...]
    """`host:port` of at least one broker; `[address]:port` for IPv6."""
    cluster_id: str | None = None
    """The only Kafka cluster id that this name may stand for. By default the recorded one: the id that the name had
    when it was first used, or that was accepted since."""
    client: Mapping[str, ClientValue] = field(default_factory=dict, repr=False)
    """kafka-python's options by its own names, such as TLS and SASL. A string may be `env:NAME` or `file:PATH`, which
    is read when a client is made; passwords must be."""

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads back to an equal object."""
        return _canonical(
            {
                "name": self.name,
                "bootstrap_servers": self.bootstrap_servers,
                "cluster_id": self.cluster_id,
                "client": self.client,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> ClusterSettings:
        """The object that `to_json` wrote as ``text``."""
        raw = json.loads(text)
        client = {key: tuple(value) if isinstance(value, list) else value for key, value in raw["client"].items()}
        return cls(
            name=raw["name"],
            bootstrap_servers=tuple(raw["bootstrap_servers"]),
            cluster_id=raw["cluster_id"],
            client=client,
        )


@dataclass(frozen=True, kw_only=True)
class KafkaSettings:
    """Timeouts and sizes of requests."""

    connect_timeout: float = 30.0
    """Seconds to reach a cluster."""
    operation_timeout: float = 10.0
    """Seconds that a broker may take over a request; above 0 (C12)."""
    max_batch_records: int = 8_000
    """Size of one request in metadata records, 1 + partitions + configs for each topic; at most 10000, since a broker
    refuses a larger request whole (C15)."""


@dataclass(frozen=True, kw_only=True)
class GuardSettings:
    """Limits on a run or a load as a whole."""

    max_deletes: int = 0
    """Topics that one run may delete, per cluster. Where a run would delete more, it deletes none (exit code 5)."""
    max_plan_age: float = 86_400.0
    """Seconds after which nothing more of a plan is sent, also by a resumed run (exit code 5). It may be changed while
    a run is open."""
    max_removed_rows: int = 0
    """Rows of `manifests` that one load may remove. A load that would remove more changes nothing (exit code 5)."""


IGNORE = "ignore"
"""In place of a severity: no check for such drift."""

SEVERITIES: Mapping[DriftKind, Severity] = {
    DriftKind.MISSING: Severity.ERROR,
    DriftKind.SHOULD_BE_ABSENT: Severity.ERROR,
    DriftKind.PARTITIONS_FEWER: Severity.ERROR,
    DriftKind.REPLICATION_FACTOR: Severity.ERROR,
    DriftKind.CONFIG_DIFFERS: Severity.ERROR,
    DriftKind.RECREATED: Severity.ERROR,
    DriftKind.UNMANAGED: Severity.WARNING,
    DriftKind.PARTITIONS_MORE: Severity.WARNING,
    DriftKind.ASSIGNMENT: Severity.WARNING,
    DriftKind.CONFIG_UNDECLARED: Severity.WARNING,
    DriftKind.NOT_PERMITTED: Severity.WARNING,
    DriftKind.OWNER_MISSING: Severity.WARNING,
    DriftKind.BROKER_DEFAULT_CHANGED: Severity.INFO,
    DriftKind.PREFERRED_LEADER: Severity.INFO,
}
"""What each kind of drift is where the settings don't say otherwise."""


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What an audit calls drift, and how much each kind matters."""

    require_owner: bool = False
    """A manifest without an owner is drift (`owner_missing`)."""
    owners: tuple[str, ...] = ()
    """A manifest with any other owner is drift (`owner_missing`). By default every owner is accepted."""
    severity: Mapping[DriftKind, Severity] = field(default_factory=lambda: dict(SEVERITIES))
    """The severity of each kind of drift: `error`, `warning`, `info`, or `ignore`, which leaves the kind out."""


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """A rule that every create, or every delete, must keep.

    Whether it exists and takes these options is checked where it is made.
    """

    use: str
    """A built-in policy's name, or `package.module:factory`."""
    mode: Mode = "refuse"
    """`refuse` refuses the action, `warn` only reports the violation."""
    needs: Needs | None = None
    """`full`: judge only where every topic of the cluster is visible. `visible`: judge by the visible topics. By
    default the policy's own choice; only for policies about topics together."""
    clusters: tuple[str, ...] = ()
    """Judge topics on these clusters only. By default on all."""
    owners: tuple[str, ...] = ()
    """Judge topics of these owners only. By default of all."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Judge only topics that have all of these labels. By default every topic."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Every other key of the table: the policy's own settings."""
    where: str = ""
    """Its place in the file for messages, e.g. `policies.create[2]`, counted from 1."""


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """The policies in the order they were written."""

    create: tuple[PolicySpec, ...] = ()
    """Asked about every create."""
    delete: tuple[PolicySpec, ...] = ()
    """Asked about every delete."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A checked settings file."""

    path: Path
    """The file it came from, for messages."""
    tables: TablesSettings
    """[tables]"""
    clusters: Mapping[str, ClusterSettings]
    """[clusters.NAME], in the file's order."""
    kafka: KafkaSettings = KafkaSettings()
    """[kafka]"""
    guards: GuardSettings = GuardSettings()
    """[guards]"""
    policies: PolicySettings = PolicySettings()
    """[[policies.create]] and [[policies.delete]]"""
    audit: AuditSettings = AuditSettings()
    """[audit]"""

    def cluster(self, name: str) -> ClusterSettings:
        """The cluster of that name; UsageError with the nearest known name where there is none."""
        return self.select([name])[0]

    def select(self, names: Iterable[str] = ()) -> tuple[ClusterSettings, ...]:
        """The clusters of these names, each once, in the order asked for; all of them where no name is given."""
        wanted = tuple(dict.fromkeys(names)) or tuple(self.clusters)
        problems = [
            f"{self.path}: unknown cluster `{show(name)}`; {nearest(name, self.clusters)}"
            for name in wanted
            if name not in self.clusters
        ]
        if problems:
            raise UsageError("\n".join(problems))
        return tuple(self.clusters[name] for name in wanted)

    def digest(self) -> str:
        """SHA-256 (hex) of what bears on decisions, for refusing to resume a run under other settings.

        In: where the tables are, the clusters' names and expected ids, guards and policies. Out: how clusters are
        reached, timeouts and batch sizes: correcting an address or a password is how an open run gets finished.
        """
        clusters = {name: {"cluster_id": cluster.cluster_id} for name, cluster in self.clusters.items()}
        policies = {
            kind: [
                {
                    "use": spec.use,
                    "mode": spec.mode,
                    "needs": spec.needs,
                    "clusters": spec.clusters,
                    "owners": spec.owners,
                    "labels": spec.labels,
                    "options": spec.options,
                }
                for spec in specs
            ]
            for kind, specs in (("create", self.policies.create), ("delete", self.policies.delete))
        }
        return _digest(
            {
                "tables": {"root": self.tables.root},
                "clusters": clusters,
                "guards": {"max_deletes": self.guards.max_deletes},
                "policies": policies,
            }
        )

    def audit_digest(self) -> str:
        """As `digest`, of what bears on an audit."""
        return _digest(
            {
                "tables": {"root": self.tables.root},
                "clusters": {name: {"cluster_id": cluster.cluster_id} for name, cluster in self.clusters.items()},
                "audit": asdict(self.audit),
            }
        )


def load_settings(path: Path) -> Settings:
    """Read and check ``path``; raises one SettingsError that lists every problem of the file, one a line."""
    raw = _read_toml(path)
    problems: list[str] = []
    top = _Table("", raw, problems)
    top.only("tables", "clusters", "kafka", "guards", "policies", "audit")
    clusters = top.table("clusters")
    settings = Settings(
        path=path,
        tables=_tables(top.table("tables")),
        clusters=_clusters(clusters, problems),
        kafka=_kafka(top.table("kafka")),
        guards=_guards(top.table("guards")),
        policies=_policies(top.table("policies"), clusters.values),
        audit=_audit(top.table("audit")),
    )
    if problems:
        raise SettingsError("\n".join(f"{path}: {problem}" for problem in problems))
    return settings


def _digest(content: object) -> str:
    return hashlib.sha256(_canonical(content).encode("utf-8")).hexdigest()


def has_url_credentials(option: str, text: str) -> bool:
    """Whether the value of a client option is a URL with a password in it (`proxy_url`: also without a scheme)."""
    return bool(_URL_CREDENTIALS.search(text)) or (option in _PROXY_OPTIONS and "@" in text)


def _read_toml(path: Path) -> dict[str, object]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file; name the settings file with --config") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: is a folder, not a settings file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: not UTF-8") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


class _Table:
    """A TOML table being checked: reads give the value or a stand-in, and note what is wrong in ``problems``."""

    def __init__(self, where: str, values: Mapping[str, object], problems: list[str]) -> None:
        self.where = where
        self.values = values
        self.problems = problems

    def key(self, name: str) -> str:
        """The full dotted name of a key, as TOML writes it."""
        written = name if _BARE_KEY.fullmatch(name) else json.dumps(show(name), ensure_ascii=False)
        return f"{self.where}.{written}" if self.where else written

    def problem(self, name: str, text: str) -> None:
        self.problems.append(f"`{self.key(name)}` {text}")

    def only(self, *known: str) -> None:
        for name in self.values:
            if name not in known:
                self.problems.append(f"unknown key `{self.key(name)}`; {nearest(name, known)}")

    def table(self, name: str) -> _Table:
        value = self.values.get(name, {})
        if not isinstance(value, dict):
            self.problem(name, f"must be a table, [{self.key(name)}], not {_kind(value)}")
            value = {}
        return _Table(self.key(name), value, self.problems)

    def text(self, name: str) -> str | None:
        """A string with something in it, None where the key is missing or wrong."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.problem(name, f"must be a string, not {_kind(value)}")
            return None
        if not value.strip():
            self.problem(name, "must not be empty")
            return None
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, at least one; empty where the key is missing or wrong."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
            self.problem(name, "must be a list of strings, at least one")
            return ()
        return tuple(value)

    def text_values(self, name: str) -> Mapping[str, str]:
        """A table of strings, at least one; empty where the key is missing or wrong."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not value or not all(isinstance(each, str) for each in value.values()):
            self.problem(name, "must be a table of strings, at least one")
            return {}
        return value

    def integer(self, name: str, default: int, least: int, most: int, why: str = "") -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(name, f"must be an integer, not {_kind(value)}")
            return default
        if not least <= value <= most:
            self.problem(name, f"must be between {least} and {most}{why}")
            return default
        return value

    def flag(self, name: str) -> bool:
        """True or false; false where the key is missing or wrong."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            self.problem(name, f"must be true or false, not {_kind(value)}")
            return False
        return value

    def seconds(self, name: str, default: float, why: str = "") -> float:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.problem(name, f"must be a number of seconds, not {_kind(value)}")
            return default
        if not 0.001 <= value <= _MAX_TIMEOUT_SECONDS:
            self.problem(name, f"must be above 0 (from 0.001 to {_MAX_TIMEOUT_SECONDS:.0f} seconds){why}")
            return default
        return float(value)


def _tables(table: _Table) -> TablesSettings:
    table.only("root", "single_writer")
    if "root" not in table.values:
        table.problem("root", "is missing: a path or `catalog.schema` for the Delta tables")
    return TablesSettings(root=table.text("root") or "", single_writer=table.flag("single_writer"))


def _kafka(table: _Table) -> KafkaSettings:
    table.only("connect_timeout", "operation_timeout", "max_batch_records")
    return KafkaSettings(
        connect_timeout=table.seconds("connect_timeout", KafkaSettings.connect_timeout),
        operation_timeout=table.seconds(
            "operation_timeout",
            KafkaSettings.operation_timeout,
            ": otherwise the broker answers REQUEST_TIMED_OUT for every topic, and the outcome stays unknown (C12)",
        ),
        max_batch_records=table.integer(
            "max_batch_records",
            KafkaSettings.max_batch_records,
            1,
            MAX_BATCH_RECORDS,
            ": a broker refuses a larger request whole (C15)",
        ),
    )


def _guards(table: _Table) -> GuardSettings:
    table.only("max_deletes", "max_plan_age", "max_removed_rows")
    return GuardSettings(
        max_deletes=table.integer("max_deletes", GuardSettings.max_deletes, 0, 2**31 - 1),
        max_plan_age=table.seconds("max_plan_age", GuardSettings.max_plan_age),
        max_removed_rows=table.integer("max_removed_rows", GuardSettings.max_removed_rows, 0, 2**31 - 1),
    )


def _audit(table: _Table) -> AuditSettings:
    table.only("require_owner", "owners", "severity")
    require_owner = table.flag("require_owner")
    given = table.table("severity")
    given.only(*DriftKind)
    severity = dict(SEVERITIES)
    for name in DriftKind:
        text = given.text(name)
        if text == IGNORE:
            del severity[name]
        elif text in tuple(Severity):
            severity[name] = Severity(text)
        elif text is not None:
            given.problem(name, f'must be one of {", ".join((*Severity, IGNORE))}, not "{show(text)}"')
    return AuditSettings(require_owner=require_owner, owners=table.texts("owners"), severity=severity)


def _policies(table: _Table, clusters: Iterable[str]) -> PolicySettings:
    table.only("create", "delete")
    return PolicySettings(
        create=_policy_list(table, "create", clusters), delete=_policy_list(table, "delete", clusters)
    )


def _policy_list(table: _Table, kind: str, clusters: Iterable[str]) -> tuple[PolicySpec, ...]:
    value = table.values.get(kind, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        table.problem(kind, f"must be a list of tables: write [[{table.key(kind)}]] above each policy")
        return ()
    specs = []
    for number, item in enumerate(value, start=1):
        where = f"{table.key(kind)}[{number}]"
        policy = _Table(where, item, table.problems)
        if "use" not in item:
            policy.problem("use", "is missing: a built-in policy or `package.module:factory`")
        mode = item.get("mode", "refuse")
        if mode not in ("refuse", "warn"):
            policy.problem("mode", 'must be "refuse" or "warn"')
        needs = item.get("needs")
        if needs not in (None, "full", "visible"):
            policy.problem("needs", 'must be "full" or "visible"')
        named = policy.texts("clusters")
        for name in named:
            if name not in clusters:
                policy.problem("clusters", f"names unknown cluster `{show(name)}`; {nearest(name, clusters)}")
        specs.append(
            PolicySpec(
                use=policy.text("use") or "",
                mode=cast(Mode, mode),
                needs=cast(Needs | None, needs),
                clusters=named,
                owners=policy.texts("owners"),
                labels=policy.text_values("labels"),
                options={key: each for key, each in item.items() if key not in OF_EVERY_POLICY},
                where=where,
            )
        )
    return tuple(specs)


def _clusters(table: _Table, problems: list[str]) -> dict[str, ClusterSettings]:
    if not table.values:
        problems.append("no clusters: at least one [clusters.NAME] with `bootstrap_servers` is needed")
    clusters = {}
    for name in table.values:
        if not name.strip() or name != name.strip() or not name.isprintable():
            table.problem(
                name,
                "is not a valid name of a cluster: it is empty, or has blanks around it or control characters in it",
            )
        cluster = table.table(name)
        cluster.only("bootstrap_servers", "cluster_id", "client")
        clusters[name] = ClusterSettings(
            name=name,
            bootstrap_servers=_bootstrap_servers(cluster),
            cluster_id=cluster.text("cluster_id"),
            client=_client(cluster.table("client")),
        )
    return clusters


def _bootstrap_servers(cluster: _Table) -> tuple[str, ...]:
    name = "bootstrap_servers"
    value = cluster.values.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        found = "is missing" if value is None else f"is {_kind(value)}"
        cluster.problem(name, f'{found}: must be a list of "host:port" strings')
        return ()
    if not value:
        cluster.problem(name, 'is empty: must name at least one "host:port"')
    for server in value:
        match = _SERVER.fullmatch(server)
        if match is None or not 1 <= int(match["port"]) <= 65535:
            # a URL with a password may have been pasted here
            shown = "an entry" if "@" in server else f'"{show(server)}"'
            cluster.problem(name, f'{shown} is not "host:port" with a port from 1 to 65535')
    return tuple(value)


def _client(table: _Table) -> dict[str, ClientValue]:
    """Client options with the type of kafka-python's own default; messages never repeat a value."""
    if not table.values:
        return {}
    from kafka.admin import KafkaAdminClient

    defaults: Mapping[str, object] = KafkaAdminClient.DEFAULT_CONFIG
    known = [name for name in defaults if name not in _FOREIGN_OPTIONS]
    checked: dict[str, ClientValue] = {}
    for name, value in table.values.items():
        if name in _FOREIGN_OPTIONS:
            table.problem(name, f"can't be set here: {_FOREIGN_OPTIONS[name]}")
        elif name not in defaults:
            table.problems.append(f"unknown key `{table.key(name)}`; {nearest(name, known)}")
        else:
            reason = _client_problem(name, value, defaults[name])
            if reason is not None:
                table.problem(name, reason)
            else:
                checked[name] = tuple(value) if isinstance(value, list) else cast(ClientValue, value)
    return checked


def _client_problem(name: str, value: object, default: object) -> str | None:
    """Why ``value`` can't be client option ``name``, None if it can; ``default`` is kafka-python's."""
    if name == "api_version":
        whole = isinstance(value, list) and all(type(part) is int and part >= 0 for part in value)
        return None if whole and value else "must be a list of integers such as [3, 9]"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else f"must be true or false, not {_kind(value)}"
    if isinstance(default, int) or name in _INTEGER_OPTIONS_WITHOUT_DEFAULT:
        return None if type(value) is int else f"must be an integer, not {_kind(value)}"
    if not isinstance(value, str):
        return f"must be a string, not {_kind(value)}"
    if _REFERENCE.fullmatch(value):
        return f"is only `{value}`: the name of the variable or file is missing"
    if _REFERENCE.match(value):
        return None
    if name in SECRET_OPTIONS or has_url_credentials(name, value):
        return "holds a secret: give it as env:NAME or file:PATH"
    if name == "sasl_oauth_token_provider" and not _FACTORY.fullmatch(value):
        return 'must be "package.module:factory"'
    return None


def _kind(value: object) -> str:
    """A value's TOML type, with its article; used instead of the value, which may be a secret."""
    if isinstance(value, bool):
        return "a boolean"
    kinds = {str: "a string", int: "an integer", float: "a float", list: "a list", dict: "a table"}
    return kinds.get(type(value), "a date or time")


def _canonical(content: object) -> str:
    """JSON with one way to write it; TOML's dates and times as ISO text."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
