"""Names that brokers accept and that almost never apply: a plan warns of each."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.frames import frame
from topicledger.resources.acls.rows import unusual
from topicledger.resources.group_configs.rows import OF_GROUPS
from topicledger.resources.quotas.rows import OF_QUOTAS
from topicledger.schemas import ACL_KEY, ACLS, GROUP_CONFIGS, QUOTAS

PLACEHOLDERS = ["{{ x }}", "${X}", "<%= x %>", "$(X)", "@X@", "%X%", "[[ x ]]"]
TEMPLATE, BLANK, TEXT = "contains a template placeholder", "begins or ends with a blank", "brokers compare it as text"
ACL = {"principal": "User:a", "permission": "ALLOW", "operation": "READ", "host": "*"}
GROUP = {"resource_type": "GROUP", "pattern_type": "LITERAL"}


def principal(name: str) -> dict[str, Any]:
    return {**ACL, **GROUP, "principal": name, "resource_name": "g"}


def name(text: str, **more: str) -> dict[str, Any]:
    return {**ACL, **GROUP, "resource_name": text, **more}


PREFIXED = {"pattern_type": "PREFIXED"}
OF_ACLS = [
    *((principal(f"User:{each}"), TEMPLATE) for each in PLACEHOLDERS),
    *((name(each), TEMPLATE) for each in PLACEHOLDERS),
    *((principal(f"User:{each}"), "one name with a separator") for each in ("a,b", "a;b", "a,User:b", "a|User:b")),
    (principal("User:a User:b"), "one name with a separator"),
    (principal("User:CN=a,User:CN=b"), "one name with a separator"),
    *((principal(f"User:{each}:a"), "two types") for each in ("user", "User", "Group")),
    (principal("User:a\u00a0"), BLANK),
    (principal("User: a"), BLANK),
    (principal("User:a*"), "only User:* is everyone"),
    (name("app-*"), TEXT),
    (name("*-app"), TEXT),
    (name("app-*", **PREFIXED), TEXT),
    (name("tx-*", **PREFIXED, resource_type="TRANSACTIONAL_ID", operation="WRITE"), TEXT),
    (name("a,b"), "one name with a comma"),
    (name("app "), BLANK),
    *((principal(f"User:{each}"), None) for each in ("*", "CN=a,O=b", "auth0|7", "system:serviceaccount:a:b", "a b")),
    *((principal(f"User:{each}"), None) for each in ("a@b", "50%", "$a", "ä")),
    (name("*"), None),
    (name("app-", **PREFIXED), None),
    (name("User:CN=a,O=b", resource_type="USER", operation="DESCRIBE_TOKENS"), None),
]
OF_QUOTA = [
    *(({"user": each}, TEMPLATE) for each in PLACEHOLDERS),
    *(({"user": f"{each}:bob"}, f"users without a type: remove {each}:") for each in ("User", "user", "Group")),
    ({"client_id": "a,b"}, "one name with a comma"),
    ({"user": "a;b"}, "one name with a comma"),
    ({"user": "bob "}, BLANK),
    ({"user": "<default>", "client_id": " app"}, BLANK),
    ({"user": "*"}, "write <default>"),
    ({"client_id": "app-*"}, "has a *"),
    *(({"user": each}, None) for each in ("CN=bob, O=x", "<default>", "username", "a|b", "bob")),
    ({"client_id": "user:bob"}, None),
]
OF_GROUP = [
    *(({"group": each}, TEMPLATE) for each in PLACEHOLDERS),
    *(({"group": each}, "ordinary character") for each in ("*", "app-*")),
    ({"group": "app "}, BLANK),
    ({"group": "a,b"}, "one name with a comma"),
    *(({"group": each}, None) for each in ("app", "a b", "a.b-c_d:1")),
]


@pytest.mark.parametrize(
    ("table", "column", "cases"),
    [
        (ACLS, lambda: unusual("acl"), OF_ACLS),
        (QUOTAS, OF_QUOTAS.unusual, OF_QUOTA),
        (GROUP_CONFIGS, OF_GROUPS.unusual, OF_GROUP),
    ],
    ids=["acls", "quotas", "group configs"],
)
def test_a_name_that_almost_never_applies_has_a_reason(
    spark: SparkSession, table: Any, column: Any, cases: list[tuple[dict[str, Any], str | None]]
) -> None:
    rows = frame(
        spark,
        table.schema,
        [{"cluster": "c", "labels": {"place": str(at)}, **row} for at, (row, _) in enumerate(cases)],
    )
    if table is ACLS:
        rows = rows.withColumn("acl", F.struct(*ACL_KEY))
    found = {int(each[0]): each[1] for each in rows.select(F.col("labels")["place"], column()).collect()}
    for place, (row, reason) in enumerate(cases):
        assert (found[place] is None) == (reason is None), (row, found[place])
        assert reason is None or reason in found[place], (row, found[place])
