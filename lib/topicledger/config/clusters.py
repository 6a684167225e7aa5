"""Read [clusters.NAME]: addresses, and client options with the types of kafka-python's own defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from topicledger.config.addresses import is_host
from topicledger.config.oauth import read_oauth
from topicledger.config.principals import read_principal
from topicledger.config.secrets import has_url_credentials
from topicledger.config.settings import SECRET_OPTIONS, ClientValue, ClusterSettings
from topicledger.config.toml_table import HOLDS_A_SECRET, REFERENCES, TomlTable, kind_of, only_a_prefix
from topicledger.text import nearest, show

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

_FACTORY = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")
_SERVER = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


def read_clusters(table: TomlTable, problems: list[str]) -> dict[str, ClusterSettings]:
    if not table.values:
        problems.append("no clusters: declare at least one [clusters.NAME] with `bootstrap_servers`")
    clusters = {}
    for name in table.values:
        # Lists of clusters in the ledger have commas between names.
        if not name.strip() or name != name.strip() or not name.isprintable() or "," in name:
            table.problem(
                name,
                "is not a valid cluster name: it is empty, has surrounding blanks, or contains a comma or control "
                "characters",
            )
        cluster = table.table(name)
        cluster.only("bootstrap_servers", "cluster_id", "principal", "client", "oauth", "changes")
        client = cluster.table("client")
        clusters[name] = ClusterSettings(
            name=name,
            bootstrap_servers=_bootstrap_servers(cluster),
            cluster_id=cluster.text("cluster_id"),
            principal=read_principal(cluster, "principal"),
            client=_client(client),
            oauth=read_oauth(cluster.table("oauth"), client.values),
        )
    return clusters


def _bootstrap_servers(cluster: TomlTable) -> tuple[str, ...]:
    name = "bootstrap_servers"
    value = cluster.values.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        found = "is missing" if value is None else f"is {kind_of(value)}"
        cluster.problem(name, f'{found}: must be a list of "host:port" strings, one for each server')
        return ()
    if not value:
        cluster.problem(name, 'is empty: must name at least one "host:port"')
    for server in value:
        match = _SERVER.fullmatch(server)
        if match is None or not 1 <= int(match["port"]) <= 65535 or not is_host(match["ipv6"] or match["host"]):
            # a URL with a password may have been pasted here
            shown = "an entry" if "@" in server else f'"{show(server)}"'
            # Kafka's own tools and properties files accept such lists.
            listed = [each for each in re.split("[,;]", server) if each.strip()]
            several = len(listed) > 1 or sum(":" in each for each in server.split()) > 1
            hint = ": write one string for each server" if several else _odd_labels(match)
            cluster.problem(name, f'{shown} is not "host:port" with a port from 1 to 65535{hint}')
    return tuple(value)


def _odd_labels(match: re.Match[str] | None) -> str:
    """Return the hint for a host with a wrong label; empty if something else is wrong."""
    if match is None or not match["host"] or is_host(match["host"]):
        return ""
    return ": between the dots of a host are 1 to 63 characters"


def _client(table: TomlTable) -> dict[str, ClientValue]:
    """Read client options, with the types of kafka-python's own defaults; messages never repeat a value."""
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
    """Return why ``value`` is invalid for client option ``name``, else None; ``default`` is kafka-python's."""
    if name == "api_version":
        whole = isinstance(value, list) and all(type(part) is int and part >= 0 for part in value)
        return None if whole and value else "must be a list of integers such as [3, 9]"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else f"must be true or false, not {kind_of(value)}"
    if isinstance(default, int) or name in _INTEGER_OPTIONS_WITHOUT_DEFAULT:
        return None if type(value) is int else f"must be an integer, not {kind_of(value)}"
    if not isinstance(value, str):
        return f"must be a string, not {kind_of(value)}"
    if value.startswith(REFERENCES):
        return only_a_prefix(value)
    if name in SECRET_OPTIONS or has_url_credentials(name, value):
        return HOLDS_A_SECRET
    if name == "sasl_oauth_token_provider" and not _FACTORY.fullmatch(value):
        return 'must be "package.module:factory"'
    return None
