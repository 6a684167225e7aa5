"""Managed clusters: examples/msk/role.json allows what the features of docs/permissions.md need, and nothing else."""

from __future__ import annotations

import json
import re

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


def test_pages_have_the_equivalent_of_every_operation_on_managed_clusters() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Managed clusters")[2].partition("\n## ")[0]
    actions = (REPOSITORY / "examples" / "msk" / "README.md").read_text(encoding="utf-8").partition("## Actions")[2]
    found = {
        operation: action
        for names, action in re.findall(r"^- (.*): (.*)$", actions, re.MULTILINE)
        for operation in names.split(", ")
    }
    needed = {(where, each) for needs in rows_of_page().values() for where, names in needs.items() for each in names}
    assert found == {
        f"{each} {where}": f"`{ACTIONS[where, each]}`" if (where, each) in ACTIONS else "none" for where, each in needed
    }
    without = sorted(f"{each} {where}" for where, each in needed if each not in CONFLUENT[where])
    assert f"has an ACL for each operation, except {', '.join(without)}." in section.replace("\n", " ")


def test_page_describes_every_statement_of_the_role() -> None:
    page = (REPOSITORY / "examples" / "msk" / "README.md").read_text(encoding="utf-8")
    found = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert found == [each["Sid"] for each in ROLE["Statement"]]
