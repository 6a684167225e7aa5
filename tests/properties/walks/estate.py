"""The clusters of a walk, what is declared of them, and what runs plan from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.properties.rows.columns import Struct
from tests.properties.rows.frames import DataFrame, Session
from tests.properties.walks.cluster import Cluster, Partition
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import (
    ChangeSettings,
    ClusterSettings,
    ReplicaSettings,
    Settings,
    TablesSettings,
)
from topicledger.model import Action, ReplicaAction
from topicledger.model.moves import assignments_text
from topicledger.naming import Sections
from topicledger.resources.acls.acl import Acl
from topicledger.resources.acls.names import AclSettings
from topicledger.schemas import ACTIONS

EAST, WEST = "east", "west"
IDS = {EAST: "id-east", WEST: "id-west"}

MOVES: Mapping[str, tuple[str, Mapping[int, tuple[int, int]]]] = {
    "m1": (EAST, {0: (2, 3), 1: (1, 3)}),
    "m2": (EAST, {0: (2, 3)}),
    "m3": (WEST, {0: (2, 3)}),
}
"""Topics whose partitions are on brokers 1 and 2, and their planned brokers."""
CREATES = {"c1": EAST, "c2": EAST, "c3": WEST}
DELETES = {"d1": EAST}
GROWS = {"g1": EAST}
ALTERS = {"k1": EAST, "k2": WEST}
TOPICS = (*MOVES, *CREATES, *DELETES, *GROWS, *ALTERS)
CLUSTER_OF = {**{name: each for name, (each, _) in MOVES.items()}, **CREATES, **DELETES, **GROWS, **ALTERS}

MANAGED, UNMANAGED = "User:app", "User:other"
CLUSTER = "kafka-cluster"


def _acl(operation: str, principal: str = MANAGED, name: str = "t", permission: str = "ALLOW") -> Acl:
    return Acl(
        principal=principal,
        permission=permission,
        operation=operation,
        resource_type="CLUSTER" if name == CLUSTER else "TOPIC",
        pattern_type="LITERAL",
        resource_name=name,
        host="*",
    )


ACLS = (
    _acl("READ"),
    _acl("WRITE"),
    _acl("READ", name="u"),
    _acl("READ", name="v"),
    _acl("DESCRIBE", name="u"),
    _acl("READ", name="w"),
    _acl("IDEMPOTENT_WRITE", name=CLUSTER),
    _acl("WRITE", name="x"),
    _acl("WRITE", name="x", permission="DENY")._replace(host="10.0.0.2"),
)
"""ACLs declared on the first cluster."""
_LACKED = ACLS[4:]
"""Those of them that the cluster lacks when a walk begins."""
ON = ("t", "u", "v", "w", CLUSTER)
"""Names of the resources that ACLs are about."""


def foreign(name: str) -> Acl:
    """Return somebody else's ACL on a resource."""
    return _acl("DESCRIBE", principal=UNMANAGED, name=name)


@dataclass(frozen=True, kw_only=True)
class Estate:
    """How a walk's runs go about it."""

    at_once: bool = False
    """Whether each event waits for its own moments; else for the event before it, too."""
    by_manifests: bool = True
    """Whether moves follow from manifests; else from `rebalance`."""
    appends: str = "step"
    """After what rows reach `audit`: a row, a batch, a step."""
    late_commits: bool = False
    """Whether what is committed beside something else is committed last."""
    approvals: int = 0
    max_acl_deletes: int = 9
    allows: bool = False
    """Whether approvals allow what guards stopped."""
    open_to_all: bool = False
    """Whether everybody may use resources of the first cluster that no ACL is about."""

    def settings(self) -> Settings:
        return Settings(
            path=Path("walks.toml"),
            tables=TablesSettings(root="memory"),
            clusters={name: ClusterSettings(name=name, bootstrap_servers=("h:9092",)) for name in IDS},
            changes=dict.fromkeys(IDS, ChangeSettings(configs="declared", partitions="grow", replicas="on")),
            replicas=ReplicaSettings(throttle=1_000, max_partitions_per_broker=1),
            of_kinds=Sections([AclSettings(manage=(f"^{MANAGED}$",))]),
            guards=GuardSettings(
                max_deletes=9,
                max_moves=9,
                max_losses=9,
                of_kinds={"max_acl_deletes": self.max_acl_deletes},
                approvals=self.approvals,
            ),
        )


def clusters(estate: Estate) -> dict[str, Cluster]:
    """As they are when a walk begins."""
    found = {name: Cluster(name, its_id) for name, its_id in IDS.items()}
    for name, (cluster, wanted) in MOVES.items():
        found[cluster].make(name, dict.fromkeys(wanted, (1, 2)))
    for names in (DELETES, GROWS, ALTERS):
        for name, cluster in names.items():
            found[cluster].make(name, {0: (1,)})
    for name, cluster in ALTERS.items():
        found[cluster].topics[name].configs["x"] = "1"
    found[EAST].acls = {*ACLS, *(foreign(each) for each in ON if each != "u")}.difference(_LACKED)
    found[EAST].open_to_all = estate.open_to_all
    return found


class Declared:
    """The manifests, as their owners write them."""

    def __init__(self) -> None:
        self.topics: set[str] = set(TOPICS)
        self.acls: dict[int, Acl] = dict(enumerate(ACLS))

    def manifests(self) -> list[dict[str, Any]]:
        return [_declaration(name) for name in TOPICS if name in self.topics]

    def acl_rows(self) -> list[dict[str, Any]]:
        return [{"cluster": EAST, "state": "present", "owner": "team", **each._asdict()} for each in self.acls.values()]

    def edit(self, kind: str, number: int) -> bool:
        """An owner changes the row of an ACL; whether that changes anything."""
        before = dict(self.acls)
        acl = ACLS[number]
        if kind == "removes an acl":
            self.acls.pop(number, None)
        elif kind == "edits an acl":
            # No broker ever matches a host's name: the row is refused (A3).
            self.acls[number] = acl._replace(host="app01.example.org")
        elif kind == "moves an acl":
            self.acls[number] = acl._replace(host="10.0.0.1")
        else:
            self.acls[number] = acl
        return before != self.acls


def is_valid(acl: Acl) -> bool:
    """Whether its row is accepted: of the values that `Declared.edit` writes."""
    return acl.host != "app01.example.org"


def _declaration(name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cluster": CLUSTER_OF[name], "topic": name, "state": "present", "owner": "team"}
    if name in MOVES:
        return {**row, "num_partitions": len(MOVES[name][1]), "replication_factor": 2, "placement": "brokers:1,2,3"}
    if name in DELETES:
        return {**row, "state": "absent"}
    if name in GROWS:
        return {**row, "num_partitions": 2}
    return {**row, "configs": {"x": "2"}} if name in ALTERS else {**row, "num_partitions": 1, "replication_factor": 1}


def planned(kind: str, live: Mapping[str, Cluster], declared: Collection[str]) -> DataFrame:
    """Return the decisions of a run on topics, as `batches.planned` takes them.

    `declared`: names of topics in the version of the manifests with which the run began.
    """
    rows = []
    for action, name, topic, change in _changes(kind, live, declared):
        row = dict.fromkeys((*ACTIONS.names, "moves"))
        row |= {key: value for key, value in _declaration(name).items() if key in row}
        row |= {
            "cluster": topic[0].name,
            "cluster_id": topic[0].cluster_id,
            "action": action,
            "resource_type": "topic",
            "resource": name,
            "topic_id": topic[1],
            **change,
        }
        rows.append({**row, "waits": False, "decision": action})
    return Session().createDataFrame(
        rows, ",".join(f"{each} x" for each in (*ACTIONS.names, "moves", "waits", "decision"))
    )


_Change = tuple[str, str, tuple[Cluster, str | None], Mapping[str, Any]]


def _changes(kind: str, live: Mapping[str, Cluster], declared: Collection[str]) -> Iterator[_Change]:
    for name in TOPICS:
        cluster = live[CLUSTER_OF[name]]
        topic = cluster.topics.get(name)
        if name not in declared or (name in MOVES) != (kind == "moves") or kind == "acls":
            continue
        if topic is None:
            if name in CREATES:
                yield Action.CREATE.value, name, (cluster, None), {}
            continue
        found = (cluster, topic.uid)
        if name in MOVES:
            before = _to_move(topic.partitions, MOVES[name][1])
            if before:
                after = {number: MOVES[name][1][number] for number in before}
                yield ReplicaAction.REASSIGN.value, name, found, _moved(before, after)
        elif name in DELETES:
            shape = {"num_partitions": str(len(topic.partitions))}
            yield Action.DELETE.value, name, found, {"before": shape}
        elif name in GROWS and len(topic.partitions) == 1:
            counts = {"before": {"num_partitions": "1"}, "after": {"num_partitions": "2"}}
            yield Action.ADD_PARTITIONS.value, name, found, counts
        elif name in ALTERS and topic.configs.get("x") != "2":
            was = {"x": topic.configs["x"]} if "x" in topic.configs else {}
            yield Action.ALTER_CONFIGS.value, name, found, {"before": was, "after": {"x": "2"}}


def _to_move(live: Mapping[int, Partition], wanted: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    return {
        number: part.replicas
        for number, part in live.items()
        if number in wanted and part.under_way is None and part.replicas != wanted[number]
    }


def _moved(before: Mapping[int, tuple[int, ...]], after: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    targets = {number: tuple(each) for number, each in after.items()}
    moves = [{"partition": each, "before": before[each], "after": new} for each, new in targets.items()]
    return {
        "moves": [Struct(each) for each in moves],
        "before": {"assignments": assignments_text(before)},
        "after": {"assignments": assignments_text(targets), "bytes": "10"},
    }
