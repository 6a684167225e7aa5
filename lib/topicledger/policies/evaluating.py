"""Phase policy: rules about actions, evaluated on all resources of a kind at once (P1, P3).

A policy adds violations to rows. It never drops a row, and never stops at the first broken rule. Row rules, which are
about single topics, are evaluated first. Set rules follow in the settings' order; for each of them, only topics that no
earlier rule refused use up a budget.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType

from topicledger.errors import PolicyError
from topicledger.frames import materialised
from topicledger.ledger.retries import SPARK_ERRORS, first_sentence
from topicledger.manifests.rows import Transform
from topicledger.model import Action, Outcome, Phase, Refusal
from topicledger.phases import VIOLATIONS
from topicledger.policies.contract import ADDED, OF_TOPICS, Facts, Policy, RowRule, Subject
from topicledger.text import show

log = logging.getLogger(__name__)

_SHOWN_CHARACTERS = 400
"""Longest text to show of an exception that a user's own policy raised."""

_TYPES = {"reason": StringType(), "unjudgeable": StringType(), "needs_freed": BooleanType(), "inputs": StringType()}


def warning(policy: str, message: Column) -> Column:
    """Return `violations` with one warning of `policy`; null if there is no `message`."""
    found = F.array(F.struct(F.lit(policy).alias("policy"), message.alias("message"), F.lit(True).alias("warns")))
    return F.when(message.isNotNull(), found).cast(VIOLATIONS)


def together(one: Column, other: Column) -> Column:
    """Combine the violations of two columns, each once; null if there are none."""
    both = one.isNotNull() & other.isNotNull()
    return F.when(both, F.array_union(one, other)).otherwise(F.coalesce(one, other))


def evaluate(policies: Sequence[Policy], facts: Facts, subject: Subject = OF_TOPICS) -> Transform:
    """Evaluate policies: add their violations, and end rows that a policy refuses (phase policy, outcome refused).

    In and out: `phases.DECIDED`; for another subject, its columns and those of `phases.ENDED`. Every policy evaluates
    every row that was open before the first one, so all broken rules are reported, not only the first (P3). The row's
    `error` is that of the first policy, in their order, that refuses it. `waits` becomes true if a create must wait for
    deletes that make room for it.

    Raises PolicyError if a user's own policy fails or breaks its contract.
    """

    def transform(topics: DataFrame) -> DataFrame:
        if not policies:
            return topics
        evaluated = topics.transform(_answered(policies, facts, subject))
        return evaluated.transform(_with_violations(policies)).select(*topics.columns)

    return transform


def verdicts(policies: Sequence[Policy], facts: Facts, subject: Subject = OF_TOPICS) -> Transform:
    """Add the verdict of each policy, in their order; ends no row.

    In: as for `evaluate`. Out: also verdicts array<struct<policy,action,mode,asked,reason,unjudgeable,inputs>>.
    """

    def transform(topics: DataFrame) -> DataFrame:
        each_verdict = F.array(
            *(
                F.struct(
                    F.lit(policy.name).alias("policy"),
                    F.lit(policy.action.value).alias("action"),
                    F.lit(policy.mode).alias("mode"),
                    policy.asked().alias("asked"),
                    F.col(f"_reason_{number}").alias("reason"),
                    _unjudgeable(number).alias("unjudgeable"),
                    F.col(f"_inputs_{number}").alias("inputs"),
                )
                for number, policy in enumerate(policies)
            )
        )
        return topics.transform(_answered(policies, facts, subject)).select(
            *topics.columns, each_verdict.alias("verdicts")
        )

    return transform


def refused_by_row_rules(policies: Sequence[Policy]) -> Column:
    """Return whether a built-in rule about one topic refuses an open row (boolean); ends no row."""
    rules = [(each, rule) for each in policies if (rule := _row_rule(each)) and not each.users_own]
    reasons = [F.when(each.asked(), _either(rule)) for each, rule in rules if each.mode == "refuse"]
    return F.coalesce(F.lit(None).cast("string"), *reasons).isNotNull()


def _either(rule: RowRule) -> Column:
    return rule.reason if rule.unjudgeable is None else F.coalesce(rule.reason, rule.unjudgeable)


def _answered(policies: Sequence[Policy], facts: Facts, subject: Subject) -> Transform:
    """Add `open` and each policy's answer as `_reason_N`, `_unjudgeable_N`, `_needs_freed_N` and `_inputs_N`."""

    def transform(topics: DataFrame) -> DataFrame:
        action = F.col("decision").isin(*subject.actions)
        rows = topics.withColumn("open", F.coalesce(action & F.col("phase").isNull(), F.lit(False)))
        if any(policy.users_own for policy in policies):
            # The rows are read more than once: don't compute everything before them again each time.
            rows = rows.transform(materialised)
        numbered = list(enumerate(policies))
        ours = [(n, policy, rule) for n, policy in numbered if (rule := _row_rule(policy)) and not policy.users_own]
        answers: dict[str, Column] = {}
        for number, _, rule in ours:
            answers |= _answer(number, rule.reason, rule.unjudgeable, None, rule.inputs)
        # Through Spark Connect, it is an error to add no column.
        rows = rows.withColumns(answers) if answers else rows
        rows = rows.transform(_closed([(n, policy) for n, policy, _ in ours]))
        asked = {number for number, _, _ in ours}
        left = [(n, policy) for n, policy in numbered if n not in asked]
        # Row rules come first: topics that they refuse use up no budget.
        partial_sight = _partial_sight(policies, facts)
        for number, policy in sorted(left, key=lambda each: _row_rule(each[1]) is None):
            if policy.users_own:
                rows = _ask_users_own(rows, number, policy, facts, subject)
            else:
                rows = _ask_set(rows, number, policy, facts)
            if policy.needs_full_sight:
                unjudgeable = f"_unjudgeable_{number}"
                rows = rows.withColumn(unjudgeable, F.coalesce(F.col(unjudgeable), partial_sight))
            rows = rows.transform(_closed([(number, policy)]))
        return rows

    return transform


def _row_rule(policy: Policy) -> RowRule | None:
    if isinstance(policy.rule, Column):
        return RowRule(reason=policy.rule)
    return policy.rule if isinstance(policy.rule, RowRule) else None


def _answer(
    number: int,
    reason: Column | None,
    unjudgeable: Column | None = None,
    needs_freed: Column | None = None,
    inputs: Column | None = None,
) -> dict[str, Column]:
    given = {"reason": reason, "unjudgeable": unjudgeable, "needs_freed": needs_freed, "inputs": inputs}
    return {
        f"_{name}_{number}": F.lit(None).cast(_TYPES[name]) if column is None else column
        for name, column in given.items()
    }


def _partial_sight(policies: Sequence[Policy], facts: Facts) -> Column:
    """Return why topics of a row's cluster may be hidden from this principal; null if none is (M3).

    Clusters are asked only if a policy needs to know.
    """
    nothing = F.lit(None).cast("string")
    if not any(policy.needs_full_sight for policy in policies):
        return nothing
    or_else = 'or set needs = "visible" to evaluate only visible topics'
    seen: list[str] = []
    why: list[Column] = []
    for row in facts.unseen_topics(facts.brokers.select("cluster").distinct()).collect():
        cluster, unseen, error = row["cluster"], row["unseen"], row["error"]
        if unseen == 0:
            seen.append(cluster)
            continue
        message = f"it is unknown whether topics are hidden from this principal: {error}; {or_else}"
        if unseen is not None:
            hidden = f"{unseen} topics of cluster {cluster} are hidden from this principal"
            log.warning("%s: grant it Describe on all topics", hidden)
            message = f"{hidden}: grant it Describe on all topics, {or_else}"
        why += [F.lit(cluster), F.lit(message)]
    not_asked = F.lit(f"the cluster was not asked whether topics are hidden from this principal; {or_else}")
    known = F.create_map(*why)[F.col("cluster")] if why else nothing
    return F.when(~F.col("cluster").isin(*seen), F.coalesce(known, not_asked))


def _ask_set(rows: DataFrame, number: int, policy: Policy, facts: Facts) -> DataFrame:
    rule = policy.rule
    assert callable(rule)
    answered = rule(rows.withColumn("asked", policy.asked()), facts)
    given = (F.col(f"answered.{name}") if name in answered.columns else None for name in ADDED)
    columns = _answer(number, *given)
    kept = (name for name in rows.columns if name not in columns)
    return answered.alias("answered").select(*kept, *(column.alias(name) for name, column in columns.items()))


def _closed(policies: Sequence[tuple[int, Policy]]) -> Transform:
    """Close rows that these policies refuse: they use up nothing in later policies."""
    refused = reduce(
        lambda one, other: one | other,
        (_broken(number, policy).isNotNull() for number, policy in policies if policy.mode == "refuse"),
        F.lit(False),
    )
    return lambda rows: rows.withColumn("open", F.col("open") & ~refused)


def _broken(number: int, policy: Policy) -> Column:
    """Return the message of a policy's violation; null if there is none."""
    return F.when(policy.asked(), F.coalesce(F.col(f"_reason_{number}"), _unjudgeable(number)))


def _unjudgeable(number: int) -> Column:
    """Return why a policy can't evaluate a row; null for a create before validate, which may return what is missing."""
    final = F.col("validated") | (F.col("decision") != Action.CREATE.value)
    return F.when(final, F.col(f"_unjudgeable_{number}"))


def _ask_users_own(rows: DataFrame, number: int, policy: Policy, facts: Facts, subject: Subject) -> DataFrame:
    """Evaluate a user's own rule on a copy of the rows; only columns that it may add are used, after a check."""
    noted = (F.col("phase") == Phase.MANIFEST.value) & (F.col("outcome") == Outcome.SKIPPED.value)
    key = ("cluster", subject.key)
    keyed = F.col("cluster").isNotNull() & F.col(subject.key).isNotNull() & ~F.coalesce(noted, F.lit(False))
    shown = rows.where(keyed).withColumn("asked", policy.asked()).select(*subject.columns)
    with _blamed_on(policy):
        answer = _apply(policy, shown, facts)
    if not isinstance(answer, DataFrame):
        raise PolicyError(f"policy {show(policy.name)} returned {type(answer).__name__}, not a DataFrame")
    _check_columns(policy, answer, subject)
    names = [name for name in ADDED if name in answer.columns]
    with _blamed_on(policy):
        added = answer.select(*key, *names).transform(materialised)
    _check_rows(policy, shown, added, subject)
    given = {name: F.col(f"_added.{name}") if name in names else None for name in ADDED}
    columns = _answer(number, F.col("_added.reason"), *(given[name] for name in ADDED[1:]))
    same = [F.col(f"_all.{name}") == F.col(f"_added.{name}") for name in key]
    return (
        rows.alias("_all")
        .join(added.alias("_added"), on=same, how="left")
        .select("_all.*", *(column.alias(name) for name, column in columns.items()))
    )


@contextmanager
def _blamed_on(policy: Policy) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise PolicyError(f"policy {show(policy.name)} failed: {_why(error)}") from error


def _why(error: BaseException) -> str:
    if isinstance(error, PythonException):
        # The function ran on an executor: its exception follows the indented lines of the traceback.
        return show(re.split(r"\n[ \t][^\n]*(?=\n)", str(error))[-1].strip(), _SHOWN_CHARACTERS)
    if isinstance(error, SPARK_ERRORS):
        return show(first_sentence(error), _SHOWN_CHARACTERS)
    return f"{type(error).__name__}: {show(str(error), _SHOWN_CHARACTERS)}"


def _apply(policy: Policy, shown: DataFrame, facts: Facts) -> object:
    of_rows = _row_rule(policy)
    if of_rows is not None:
        parts = {"reason": of_rows.reason, "unjudgeable": of_rows.unjudgeable, "inputs": of_rows.inputs}
        return shown.withColumns({name: column for name, column in parts.items() if column is not None})
    assert callable(policy.rule)
    return policy.rule(shown, facts)


def _check_columns(policy: Policy, answer: DataFrame, subject: Subject) -> None:
    missing = [name for name in (*subject.columns, "reason") if name not in answer.columns]
    unknown = [name for name in answer.columns if name not in (*subject.columns, *ADDED)]
    problems = [f"has no column {name}" for name in missing]
    problems += [f"has an unknown column {show(name)}" for name in unknown]
    for name in ADDED:
        if name in answer.columns and answer.schema[name].dataType != _TYPES[name]:
            is_type = answer.schema[name].dataType.simpleString()
            problems.append(f"has {name} as {is_type}, not {_TYPES[name].simpleString()}")
    if problems:
        raise PolicyError(f"policy {show(policy.name)}: the returned DataFrame {'; '.join(problems)}")


def _check_rows(policy: Policy, shown: DataFrame, answer: DataFrame, subject: Subject) -> None:
    key = ["cluster", subject.key]
    both = shown.select(*key, F.lit(1).alias("n")).unionByName(answer.select(*key, F.lit(-1).alias("n")))
    wrong = both.groupBy(*key).agg(F.sum("n").alias("n")).where("n != 0").orderBy(*key).limit(3).collect()
    if wrong:
        wrong_rows = ", ".join(
            f"{show(str(row[subject.key]))} of {show(str(row['cluster']))} ({'dropped' if row['n'] > 0 else 'added'})"
            for row in wrong
        )
        raise PolicyError(f"policy {show(policy.name)} must return the rows it was given, each once: {wrong_rows}")


def _with_violations(policies: Sequence[Policy]) -> Transform:
    numbered = list(enumerate(policies))
    refusing = [(number, policy) for number, policy in numbered if policy.mode == "refuse"]
    # Columns are made only once: each takes dozens of calls into the JVM.
    broken = [_broken(number, policy) for number, policy in numbered]

    def violation(number: int, policy: Policy) -> Column:
        name, message, warns = F.lit(policy.name), broken[number], F.lit(policy.mode == "warn")
        found = F.struct(name.alias("policy"), message.alias("message"), warns.alias("warns"))
        return F.when(message.isNotNull(), found)

    def error(number: int, policy: Policy) -> Column:
        only_unjudgeable = F.col(f"_reason_{number}").isNull()
        name = F.when(only_unjudgeable, F.lit(Refusal.UNJUDGEABLE.value)).otherwise(F.lit(policy.error.value))
        return F.when(broken[number].isNotNull(), name)

    nothing = F.lit(None).cast("string")
    any_broken = F.coalesce(*broken).isNotNull()
    # Spark interprets `filter` instead of compiling it, which is slow: only the few rows that need it run it.
    found = F.when(
        any_broken, F.filter(F.array(*(violation(*each) for each in numbered)), lambda each: each.isNotNull())
    )

    def named(number: int, policy: Policy) -> Column:
        # Several policies may be unable to evaluate a row for one reason, such as that a cluster can't be asked.
        if policy.settings is None:
            return broken[number]
        return F.concat(F.when(F.col(f"_reason_{number}").isNull(), "").otherwise(f"{policy.name}: "), broken[number])

    messages = nothing
    if refusing:
        said = F.array_distinct(F.array(*(named(*each) for each in refusing)))
        messages = F.when(any_broken, F.array_join(said, "; "))
    waits = reduce(
        lambda one, other: one | other,
        (each.asked() & F.coalesce(F.col(f"_needs_freed_{number}"), F.lit(False)) for number, each in refusing),
        F.lit(False),
    )
    refused = F.col("_error").isNotNull()
    return lambda rows: rows.withColumns(
        {
            "_found": found,
            "_error": F.coalesce(nothing, *(error(*each) for each in refusing)),
            "_messages": messages,
        }
    ).withColumns(
        {
            # Earlier warnings are kept: about a placement, or about ignored configs.
            "violations": together(F.col("violations"), F.col("_found")),
            "error": F.when(refused, F.col("_error")).otherwise(F.col("error")),
            "error_message": F.when(refused, F.col("_messages")).otherwise(F.col("error_message")),
            "outcome": F.when(refused, F.lit(Outcome.REFUSED.value)).otherwise(F.col("outcome")),
            "phase": F.when(refused, F.lit(Phase.POLICY.value)).otherwise(F.col("phase")),
            "waits": F.col("waits") | (waits & ~refused),
        }
    )
