"""Which ACLs' resources others cover: the joins say the same as a comparison of each pair."""

from __future__ import annotations

from itertools import product

from pyspark.sql import SparkSession

from topicledger.resources.acls.acl import LITERAL, PREFIXED, Acl
from topicledger.resources.acls.first_acls import uncovered
from topicledger.resources.acls.overlaps import name_covers

SCHEMA = f"cluster string, acl struct<{', '.join(f'{name}: string' for name in Acl._fields)}>"


def test_resources_that_no_other_acl_covers_are_those_of_which_no_pair_does(spark: SparkSession) -> None:
    """Each pair of a wide and a narrow pattern is on a cluster of its own; one more cluster has all of them."""
    patterns = [*product(("*", "a", "ab", "abc", "b", "a*", "é", "éa"), (LITERAL, PREFIXED))]

    def acl(name: str, pattern: str, of_type: str = "TOPIC") -> Acl:
        return Acl("User:app", "ALLOW", "READ", of_type, pattern, name, "*")

    pairs = [(f"{number:03}", wide, narrow) for number, (wide, narrow) in enumerate(product(patterns, patterns))]
    wides = [(cluster, acl(*wide)) for cluster, wide, _ in pairs]
    narrows = [(cluster, acl(*narrow)) for cluster, _, narrow in pairs]
    # Another type of resource is never covered; of many ACLs that cover one, none makes it come twice.
    several = [("many", acl(*each)) for each in patterns if each[0] != "*"]
    narrows += [("many", acl("abcd", LITERAL)), ("many", acl("c", LITERAL)), ("many", acl("a", LITERAL, "GROUP"))]
    others = spark.createDataFrame([*wides, *several], SCHEMA)
    acls = spark.createDataFrame(narrows, SCHEMA)
    found = sorted((row["cluster"], Acl(*row["acl"])) for row in uncovered(acls, others).collect())
    compared = others.selectExpr("cluster", "acl AS wide").join(acls.selectExpr("cluster", "acl AS narrow"), "cluster")
    covered = {row["cluster"] for row in compared.where(name_covers("wide", "narrow")).collect()} - {"many"}
    assert 0 < len(covered) < len(pairs)
    uncovered_ones = [each for each in narrows if each[0] not in covered and each[1].resource_name != "abcd"]
    assert found == sorted(uncovered_ones)
