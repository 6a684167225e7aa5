"""Managed clusters: examples/msk/role.json allows what the features of docs/permissions.md need, and nothing else."""

from __future__ import annotations

import json

from tests.commands import REPOSITORY
from tests.permissions_page import PAGE, rows_of_page

ROLE = json.loads((REPOSITORY / "examples" / "msk" / "role.json").read_text(encoding="utf-8"))
ACTIONS = {
    ("on the cluster", "Alter"): "AlterCluster",
    ("on the cluster", "AlterConfigs"): "AlterClusterDynamicConfiguration",
    # MSK grants it on topics only.
    ("on the cluster", "Create"): "CreateTopic",
    ("on the cluster", "Describe"): "DescribeCluster",
    ("on the cluster", "DescribeConfigs"): "DescribeClusterDynamicConfiguration",
    ("on topics", "Alter"): "AlterTopic",
    ("on topics", "AlterConfigs"): "AlterTopicDynamicConfiguration",
    ("on topics", "Create"): "CreateTopic",
    ("on topics", "Delete"): "DeleteTopic",
    ("on topics", "Describe"): "DescribeTopic",
    ("on topics", "DescribeConfigs"): "DescribeTopicDynamicConfiguration",
    ("on topics", "Read"): "ReadData",
    ("on groups", "Describe"): "DescribeGroup",
}
"""Operations of Kafka -> actions of MSK's access control by IAM, both from AWS' documentation."""
CONFLUENT = {
    "on the cluster": {"Alter", "Create", "Describe"},
    "on topics": {"Alter", "AlterConfigs", "Create", "Delete", "Describe", "DescribeConfigs", "Read"},
    "on groups": {"Describe", "Read"},
}
"""Operations that ACLs of Confluent Cloud may have, from Confluent's page "ACL Operations"."""
UNCLEAR = {
    "move replicas, elect leaders",
    'count hidden topics: policies with `needs = "full"`, `rebalance --drain`',
    "list client quotas",
    "`audit --usage`: sizes",
}
"""Features about whose requests Confluent's page has no word."""
WITHOUT_ACTIONS = {"list group configs", "change group configs"}
"""Features for which MSK has no action."""
KINDS = {"Topic": "topic", "Data": "topic", "Group": "group", "Cluster": "cluster", "Connect": "cluster"}
"""Part of an action's name -> the kind of its resource."""


def test_msk_role_allows_every_feature_of_the_page() -> None:
    rows = {name: needs for name, needs in rows_of_page().items() if name not in WITHOUT_ACTIONS}
    assert len(rows) < len(rows_of_page())
    needed = {ACTIONS[where, each] for needs in rows.values() for where, names in needs.items() for each in names}
    granted = {action.removeprefix("kafka-cluster:") for each in ROLE["Statement"] for action in each["Action"]}
    assert granted == needed | {"Connect"}
    for each in ROLE["Statement"]:
        kinds = {kind for action in each["Action"] for part, kind in KINDS.items() if part in action}
        assert kinds == {each["Resource"].split(":")[5].split("/")[0]}, each["Sid"]


def managed_rows() -> list[str]:
    """The rows about managed clusters that follow from the operations of each feature."""
    found = []
    for feature, needs in rows_of_page().items():
        operations = [(where, each) for where, names in needs.items() for each in names]
        actions = dict.fromkeys(ACTIONS.get(each, "") for each in operations)
        lacking = [f"{each} {where}" for where, each in operations if each not in CONFLUENT[where]]
        msk = "none" if feature in WITHOUT_ACTIONS else ", ".join(f"`{each}`" for each in actions)
        confluent = f"no ACL for {' and '.join(lacking)}" if lacking else "the same ACLs"
        found.append(f"| {feature} | {msk} | {'unknown' if feature in UNCLEAR else confluent} |")
    return found


def test_page_has_what_managed_clusters_need_for_each_feature() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Managed clusters")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| ")][1:] == managed_rows()


def test_page_describes_every_statement_of_the_role() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## AWS MSK")[2]
    found = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert found == [each["Sid"] for each in ROLE["Statement"]]
