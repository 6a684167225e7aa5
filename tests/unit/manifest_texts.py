"""Manifest files that several tests read, valid and wrong ones."""

from __future__ import annotations

ORDERS_YAML = """\
cluster: orders
defaults: {replication_factor: 3, owner: payments}
topics:
  - {topic: payments.authorised, num_partitions: 12, configs: {retention.ms: 604800000, cleanup.policy: compact}}
  - topic: payments.legacy
    state: absent
  - topic: payments.placed
    assignments: {0: [1, 2], 1: [2, 1]}
    labels: {tier: gold}
"""
PAYMENTS = """\
clusters: [staging, prod]
defaults: {owner: payments, replication_factor: 3, configs: {retention.ms: 7d}}
overrides: {staging: {replication_factor: 1, num_partitions: 1, configs: {retention.ms: 1d}}}
topics:
  - {topic: payments.authorised, num_partitions: 12}
  - {topic: payments.audit, num_partitions: 6, clusters: [prod], overrides: {prod: {configs: {cleanup.policy: delete}}}}
"""
OTHERS = """\
clusters: [a, b]
defaults: {owner: o, labels: {tier: gold}}
overrides: {b: {labels: {env: test}, num_partitions: 1}}
acls:
  - consumer: {principal: "User:app", topics: t, groups: g}
    overrides: {b: {consumer: {principal: "User:app-test"}}}
  - {principal: "User:x", operation: READ, resource_type: TOPIC, resource_name: t, clusters: [a]}
quotas:
  - {user: app, producer_byte_rate: 1000, overrides: {b: {producer_byte_rate: 10}}}
groups:
  - {group: g, configs: {share.auto.offset.reset: latest}, overrides: {a: {state: absent}}}
"""
VARIABLES = """\
cluster: ${CLUSTER}
topics:
  - topic: ${PREFIX}.orders
    num_partitions: ${COUNT}
    owner: "${PREFIX}"
    configs:
      retention.ms: ${DAYS}d
"""
SCALARS = """\
cluster: a
defaults: {state: "${S}"}
topics:
  - {topic: t, state: "${S}", configs: {message.format.version: 2.8}}
acls:
  - {principal: "User:x", resource_name: t, resource_type: "${T}", operation: "${O}", permission: "${P}",
     pattern_type: "${L}"}
  - producer: {principal: "User:x", topics: t, idempotent: "${I}"}
"""
"""Variables in fields that have few values, and a text that YAML reads as a number."""

HEAD = "clusters: [a, b]\ntopics:\n  - topic: t\n"
ODD = """\
cluster: null
clusters: [a, b]
defaults: {cluster: null, state: absent, configs: {max.message.bytes: 5, preallocate: true}, labels: {x: gold}}
overrides:
  a: {description: only here, replaces: old, configs: {max.message.bytes: null}, labels: {x: null}}
topics:
  - {topic: t, overrides: {b: {state: null, configs: {max.message.bytes: null, preallocate: null, fork.own: null}}}}
quotas:
  - {user: u, producer_byte_rate: 1, state: null, labels: {z: w}}
groups:
  - {group: g, configs: {c: 1}, overrides: {a: {labels: {x: null}}, b: {configs: {c: null, d: 2}}}}
---
"""
"""Nulls in every place that takes them, and fields that only overrides have in common for several topics."""
COMPLETED = """\
cluster: a
defaults:
topics: []
---
clusters: [a]
acls:
  - {principal: "User:x", overrides: {a: {operation: READ, resource_type: TOPIC, resource_name: t}}}
  - overrides: {a: {consumer: {principal: "User:y", topics: t, groups: g}}}
quotas: [{producer_byte_rate: 1, overrides: {a: {user: u}}}]
groups: [{configs: {c: 1}, overrides: {a: {group: h}}}]
"""
"""Defaults without any, and entries that only overrides complete."""
BAD: dict[str, tuple[str, str]] = {
    "a cluster of the entry that isn't listed": (
        f"{HEAD}    overrides:\n      stage: {{num_partitions: 1}}\n",
        "5: `overrides`: `stage` isn't a cluster of this entry; known: `a`, `b`",
    ),
    "a cluster of the file that isn't listed": (
        "clusters: [staging]\noverrides:\n  stagin: {num_partitions: 1}\ntopics: [{topic: t}]\n",
        "3: `overrides`: `stagin` isn't a cluster of this document; did you mean `staging`?",
    ),
    "a cluster of the defaults that isn't listed": (
        "cluster: a\ndefaults:\n  overrides: {b: {num_partitions: 1}}\ntopics: [{topic: t}]\n",
        "3: `overrides`: `b` isn't a cluster of this document; known: `a`",
    ),
    "a cluster overridden twice": (
        f"{HEAD}    overrides:\n      a: {{num_partitions: 1}}\n      a: {{num_partitions: 2}}\n",
        "6: `a` is written twice",
    ),
    "cluster and clusters": (
        "cluster: a\nclusters: [b]\ntopics: []\n",
        "2: `cluster` and `clusters` exclude each other; give one",
    ),
    "clusters, and a cluster of the defaults": (
        "clusters: [b]\ndefaults: {cluster: a}\ntopics: []\n",
        "1: `cluster` and `clusters` exclude each other; give one",
    ),
    "cluster and clusters of an entry": (
        f"{HEAD}    cluster: a\n    clusters: [b]\n",
        "5: `cluster` and `clusters` exclude each other; give one",
    ),
    "clusters as text": ("clusters: a\ntopics: []\n", '1: `clusters` must be a list of names, not the string "a"'),
    "no clusters": ("clusters: []\ntopics: []\n", "1: `clusters` is empty; name a cluster, or leave it out"),
    "a cluster twice": ("clusters: [a, a]\ntopics: []\n", "1: `clusters` names `a` twice"),
    "a cluster that is no name": (
        "clusters: [1]\ntopics: []\n",
        "1: `clusters` must be a string, not the number 1; quote it",
    ),
    "no cluster": (
        "topics:\n  - topic: t\n    overrides: {a: {num_partitions: 1}}\n",
        "2: `cluster` or `clusters` is missing",
    ),
    "overrides as a list": (f"{HEAD}    overrides: [a]\n", "4: `overrides` must map clusters to fields, not a list"),
    "an override as text": (
        f"{HEAD}    overrides: {{a: x}}\n",
        '4: `overrides`: cluster `a` must be a mapping of fields, not the string "x"',
    ),
    "another topic": (
        f"{HEAD}    overrides:\n      a:\n        topic: u\n",
        "6: `overrides`: cluster `a` can't override `topic`",
    ),
    "an ACL without its permission": (
        "clusters: [a]\nacls:\n- principal: User:u\n  permission: DENY\n  operation: READ\n  resource_type: TOPIC\n"
        "  resource_name: t\n  overrides:\n    a:\n      permission: null\n",
        "10: `overrides`: cluster `a` can't remove `permission`; write its value",
    ),
    "a shorthand without its host": (
        "clusters: [a]\nacls:\n- consumer: {principal: User:u, host: 10.0.0.1, topics: t, groups: g}\n"
        "  overrides: {a: {consumer: {host: null}}}\n",
        "4: `overrides`: cluster `a` can't remove `host`; write its value",
    ),
    "a quota without its user": (
        "clusters: [a]\nquotas:\n- {user: u, client_id: c, producer_byte_rate: 1, overrides: {a: {user: null}}}\n",
        "3: `overrides`: cluster `a` can't remove `user`; write its value",
    ),
    "an unknown field": (
        f"{HEAD}    overrides:\n      a:\n        partitions: 1\n",
        "6: unknown field `partitions`; did you mean `num_partitions`?",
    ),
    "an unknown field of the file": (
        "clusters: [a]\noverrides:\n  a:\n    partitions: 1\nquotas: [{user: u, producer_byte_rate: 1}]\n",
        "4: unknown field `partitions`; did you mean `num_partitions`?",
    ),
    "a wrong value": (
        f"{HEAD}    overrides:\n      a:\n        configs:\n          retention.ms: 7 days\n",
        '7: `configs`: `retention.ms` is "7 days"; write a whole number or a duration such as 7d or 12h',
    ),
    "a number as cluster": (
        f"{HEAD}    overrides:\n      1: {{}}\n",
        "5: `overrides`: the key `1` is a number in YAML; quote it ('1')",
    ),
    "two spellings, one in the defaults": (
        "cluster: a\ndefaults: {configs: {retention.ms: 7d}}\ntopics:\n  - {topic: t, configs: {retention_ms: 1d}}\n",
        "4: `configs`: `retention.ms` and `retention_ms` are two spellings of one config; keep one",
    ),
    "two spellings, one in an override": (
        "cluster: a\ndefaults: {configs: {retention.ms: 7d}}\noverrides: {a: {configs: {RETENTION.MS: 1d}}}\n"
        "topics: [{topic: t}]\n",
        "4: `configs`: `retention.ms` and `RETENTION.MS` are two spellings of one config; keep one",
    ),
    "null for another spelling in an entry's override": (
        f"{HEAD}    configs: {{retention.ms: 7d}}\n    overrides:\n      a: {{configs: {{Retention.ms: null}}}}\n",
        "6: `configs`: `Retention.ms`: null removes nothing, since the config is written `retention.ms`; write that",
    ),
    "null for another spelling in the file's override": (
        "cluster: a\ndefaults: {configs: {retention.ms: 7d}}\noverrides:\n  a: {configs: {retention_ms: null}}\n"
        "topics: [{topic: t}, {topic: u}]\n",
        "4: `configs`: `retention_ms`: null removes nothing, since the config is written `retention.ms`; write that",
    ),
    "null for another spelling in the defaults' override": (
        "cluster: a\ndefaults:\n  configs: {retention.ms: 7d}\n  overrides: {a: {configs: {RETENTION.MS: null}}}\n"
        "topics: []\n",
        "4: `configs`: `RETENTION.MS`: null removes nothing, since the config is written `retention.ms`; write that",
    ),
    "null for another spelling of a group's config": (
        "clusters: [a]\ngroups:\n- group: g\n  configs: {c.ms: 1}\n  overrides: {a: {configs: {C.ms: null}}}\n",
        "5: `configs`: `C.ms`: null removes nothing, since the config is written `c.ms`; write that",
    ),
    "a unit of a group's config": (
        "cluster: a\ngroups:\n- group: g\n  configs: {share.session.timeout.ms: 30s}\n",
        '4: `configs`: `share.session.timeout.ms` is "30s"; write a plain number of ms, without a unit',
    ),
    "wrong overrides of defaults that no entry has": (
        "clusters: [a, b]\ndefaults:\n  overrides: {a: {configs: {retention.ms: x}}}\n"
        "topics: [{topic: t, clusters: [b]}]\n",
        '3: `configs`: `retention.ms` is "x"; write a whole number or a duration such as 7d or 12h',
    ),
    "a wrong value that every cluster overrides": (
        f"{HEAD}    num_partitions: x\n    overrides: {{a: {{num_partitions: 1}}, b: {{num_partitions: 2}}}}\n",
        '4: `num_partitions` must be an integer, not the string "x"; write plain digits, not quoted',
    ),
    "a wrong value that the file's overrides replace on every cluster": (
        "clusters: [a]\noverrides: {a: {num_partitions: 1}}\ntopics:\n  - topic: t\n    num_partitions: x\n",
        '5: `num_partitions` must be an integer, not the string "x"; write plain digits, not quoted',
    ),
    "a state that is no text": (
        "cluster: a\nquotas:\n  - {user: u, producer_byte_rate: 1, state: 1}\n",
        "3: `state` must be a string, not the number 1; quote it",
    ),
    "a blank in a config of defaults without topics": (
        "cluster: a\ndefaults:\n  configs:\n    retention ms: 7d\ntopics: []\n",
        '4: `configs`: config names contain blanks or other illegal characters: "retention ms"',
    ),
    "a blank in a null config": (
        f"{HEAD}    overrides:\n      b: {{configs: {{'retention.ms ': null}}}}\n",
        '5: `configs`: config names contain blanks or other illegal characters: "retention.ms "',
    ),
    "two spellings of one config": (
        f"{HEAD}    configs:\n      retention.ms: 7d\n      Retention_MS: 1d\n",
        "6: `configs`: `retention.ms` and `Retention_MS` are two spellings of one config; keep one",
    ),
}
