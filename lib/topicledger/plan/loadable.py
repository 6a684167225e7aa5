"""Rows of files that a run may load: those inside its scope, without those that its plan refused."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from topicledger.files.changes import frames
from topicledger.ledger.run import Run
from topicledger.ledger.sql import same_key
from topicledger.ledger.tables import Ledger
from topicledger.manifests.files import FileRow, ParsedManifests
from topicledger.manifests.owners import is_one_of
from topicledger.model import TOPIC, Outcome, Phase
from topicledger.model.scope import Scope
from topicledger.plan.scoping import declarations
from topicledger.resources.registry import KINDS
from topicledger.schemas import DECLARING, MANIFESTS, TABLES, Table


def within(ledger: Ledger, parsed: ParsedManifests, scope: Scope) -> ParsedManifests:
    """Leave out rows that a run of this scope may not load.

    These are rows outside its owners, topics and resources, rows of barred owners, and rows in place of one of theirs:
    no file takes over what they declare.
    """
    if not (scope.barred or scope.selects_rows):
        return parsed
    kept = parsed.without_owners(scope.barred)
    inside, theirs = {}, {}
    for table in DECLARING:
        rows = kept.tables.get(table.name)
        if not rows:
            continue
        files = frames(ledger.spark, {table.name: rows})[table.name]
        if scope.selects_rows:
            inside[table.name] = _keys_of(table, files.transform(declarations(scope, table)))
        if scope.barred:
            barred = ledger.read_if_exists(table).where(is_one_of(F.col("owner"), scope.barred))
            both = files.alias("file").join(
                barred.alias("theirs"), on=same_key(table, "file", "theirs"), how="left_semi"
            )
            theirs[table.name] = _keys_of(table, both)

    left_out: set[int] = set()
    for name, rows in kept.tables.items():
        for row in rows:
            key = _key_of(name, row)
            if key in theirs.get(name, ()) or (name in inside and key not in inside[name]):
                left_out.add(id(row))
    return kept.only(lambda row: id(row) not in left_out)


def _keys_of(table: Table, rows: DataFrame) -> set[tuple[object, ...]]:
    return {tuple(key) for key in rows.select(*table.key).collect()}


def _key_of(table: str, row: FileRow) -> tuple[object, ...]:
    return tuple(row.value(column) for column in TABLES[table].key)


def without_refused(run: Run, parsed: ParsedManifests) -> tuple[ParsedManifests, int]:
    """Leave out rows that the plan refused as declarations; return the others, and how many are left out.

    Such a row breaks a rule by itself or beside other rows, and rows of other teams would be refused for it, too. Rows
    that policies or guards refused are loaded: they may be fine later.
    """
    refused = (F.col("phase") == Phase.MANIFEST.value) & (F.col("outcome") == Outcome.REFUSED.value)
    found = run.plans().where(refused & F.col("resource").isNotNull())
    keys = {(row["cluster"], row["resource_type"], row["resource"]) for row in found.collect()}
    if not keys:
        return parsed, 0
    texts = {MANIFESTS.name: (TOPIC, F.col("topic"))}
    texts |= {kind.table.name: (kind.resource_type, kind.rows.text_of()) for kind in KINDS}
    wrong: dict[str, set[tuple[object, ...]]] = {}
    for name, rows in frames(run.spark, parsed.tables).items():
        resource_type, text = texts[name]
        named = rows.withColumn("_resource", text).select("cluster", "_resource", *TABLES[name].key[1:]).collect()
        wrong[name] = {(row[0], *row[2:]) for row in named if (row[0], resource_type, row[1]) in keys}
    left_out = {id(row) for name, rows in parsed.tables.items() for row in rows if _key_of(name, row) in wrong[name]}
    return parsed.only(lambda row: id(row) not in left_out), len(left_out)
