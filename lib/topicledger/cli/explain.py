"""`policies list`, `check` and `explain`: try rules out without a run."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from topicledger import policies
from topicledger.config.settings import ClusterSettings, Settings
from topicledger.errors import ExitCode, GuardStopped, UsageError
from topicledger.frames import materialised
from topicledger.kafka import ClusterAdmin, error_name
from topicledger.kinds import NAMES
from topicledger.ledger.rows import WARNING
from topicledger.ledger.tables import Ledger
from topicledger.manifests import rows as manifests
from topicledger.model import TOPIC, Action, ReplicaAction, TopicResult
from topicledger.model.config_texts import with_units
from topicledger.model.topic_configs import topic_configs
from topicledger.observe.clusters import observe
from topicledger.observe.topics import Observation
from topicledger.phases import DECIDED
from topicledger.plan.lines import change_in_words
from topicledger.plan.reevaluate import facts
from topicledger.plan.standing import target
from topicledger.policies import Policy
from topicledger.policies.built_in import ALWAYS, BUILT_IN, Factory
from topicledger.policies.contract import CHANGES, is_move
from topicledger.resources import building
from topicledger.resources.building import Option, options, type_name, users_own
from topicledger.resources.topics.plan import effects, moving, placing, recreated
from topicledger.resources.topics.plan.changes import describe, to_describe, with_alters, with_changes
from topicledger.resources.topics.plan.decide import decide
from topicledger.resources.topics.plan.living import as_creates
from topicledger.resources.topics.plan.topics import deletes_evaluated, sizes_on
from topicledger.resources.topics.plan.wanted import brought_about
from topicledger.schemas import MANIFESTS, USAGES, Table
from topicledger.text import cell, document, grid_of, plain
from topicledger.text import console as text_console

RULE_IDS = re.compile(r" \([A-Z]\d+(?:, [A-Z]\d+)*\)")
"""Ids of rules in docstrings, which users don't know."""


@dataclass(frozen=True, kw_only=True)
class PolicyVerdict:
    """The verdict of one policy on one resource."""

    policy: str
    action: str
    """The kind of action that it evaluates."""
    mode: str
    settings: Mapping[str, Any]
    verdict: str
    """fine, broken, unjudgeable, or `not asked` if the policy's clusters, owners or labels don't match."""
    inputs: str | None
    """The evaluated values."""
    message: str | None


def list_policies(settings: Settings | None, *, as_json: bool) -> None:
    """Print the available policies: the built-in ones, and the user's own in `settings`.

    Raises SettingsError if one of these can't be imported.
    """
    found = [
        {"judges": action.value, "policy": name, "settings": _settings(factory), "what": _what(factory)}
        for action in BUILT_IN
        for name, factory in BUILT_IN[action].items()
    ]
    for action in BUILT_IN:
        for name, (factory, _) in ALWAYS.get(action, {}).items():
            found.append(
                {"judges": action.value, "policy": name, "settings": [], "what": f"{_what(factory)} Always on."}
            )
    for section, name, factory in users_own(settings) if settings is not None else ():
        found.append({"judges": section, "policy": name, "settings": _settings(factory), "what": _what(factory)})
    if as_json:
        click.echo(document(ExitCode.DONE, {"policies": found}))
        return
    grid = grid_of("action", "policy", "settings", "what")
    for each in found:
        grid.add_row(cell(each["judges"]), cell(each["policy"]), cell("; ".join(each["settings"])), cell(each["what"]))
    text_console(200).print(grid)
    click.echo("each also takes mode (refuse or warn), and clusters, owners and labels, which select its topics;")
    click.echo("rules about several topics take needs (full or visible): whether all topics must be visible")


def _settings(factory: Factory) -> list[str]:
    return [f"{each.name} ({_kind(each)})" for each in options(factory)]


def _kind(option: Option) -> str:
    """Return the type of a setting, and its default."""
    words = [] if option.type is None else [type_name(option.type)]
    if not option.required:
        left_out = option.default in (None, ())
        words.append("optional" if left_out else f"default {json.dumps(option.default, default=str)}")
    return ", ".join(words) or "required"


def _what(factory: Factory) -> str:
    return RULE_IDS.sub("", (inspect.getdoc(factory) or "").split("\n\n")[0].replace("\n", " "))


def check_policies(settings: Settings, problems: Sequence[str], *, as_json: bool) -> ExitCode:
    """Print the policies of settings. Raises SettingsError with the `problems`, and those of the policies."""
    made = building.from_settings(settings, besides=problems)
    found = [
        {
            "judges": each.action.value,
            "policy": each.name,
            "mode": each.mode,
            "needs": _needs(each),
            "settings": dict(each.options),
        }
        for each in made
    ]
    if as_json:
        click.echo(document(ExitCode.DONE, {"policies": found}))
        return ExitCode.DONE
    print_policies(settings.path, found)
    return ExitCode.DONE


def print_policies(path: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Print the policies of the settings file `path`, which are all well-formed, a row for each."""
    names = ("judges", "policy", "mode", "needs", "settings")
    grid = grid_of("action", *names[1:], title=f"{plain(str(path))}: every policy is well-formed")
    for each in found:
        grid.add_row(*(cell(_as_text(each[name]) if name == "settings" else each[name]) for name in names))
    text_console(200).print(grid)


def _needs(policy: Policy) -> str:
    return "full" if policy.needs_full_sight else "visible"


def _as_text(settings: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} = {json.dumps(value, default=str)}{_config_words(name, value)}" for name, value in settings.items()
    )


def _config_words(setting: str, value: object) -> str:
    """Return the type and the unit of the topic config that a setting names."""
    known = topic_configs().get(str(value)) if setting == "config" else None
    return "" if known is None else f" ({known.words})"


def explain(ledger: Ledger, settings: Settings, cluster: ClusterSettings, topic: str, *, as_json: bool) -> ExitCode:
    """Print each rule, its inputs and its verdict for one topic; nothing is changed or stored.

    All manifests and existing topics of the cluster count, as in a run. If the topic would be created, the broker
    resolves its values by validateOnly; other creates that leave their counts to the broker don't count. Changes of
    other topics only count if they change the number of partitions and their configs may be described. A topic that
    needs no action is evaluated as if it were created now as it is.

    Raises GuardStopped if it isn't the expected cluster.
    """
    made = building.from_settings(settings)
    validated, seen = observed(ledger, settings, cluster)
    known = facts(ledger, settings, [cluster], seen.brokers)
    mine = (F.col("cluster") == cluster.name) & (F.col("topic") == topic)
    topics, configs = to_describe(settings.changes, validated.where(mine), seen), None
    if topics is not None:
        seen, configs = describe(ledger.spark, settings.kafka, [cluster], topics, seen)
    rows = validated.transform(decide(seen.topics, seen.statuses))
    rows = rows.transform(with_changes(settings.changes, configs)).transform(materialised)
    found = rows.where(mine).orderBy(F.col("phase").isNotNull()).limit(1).collect()
    if not found:
        raise UsageError(f"cluster {cluster.name} has no topic {topic}, and no manifest names it: nothing to explain")
    row = found[0].asDict(recursive=True)
    moved = _moves(ledger.spark, settings, cluster, validated, seen, rows, configs)
    is_moved = moved is not None and not moved.where(mine & is_move()).isEmpty()
    answer: dict[str, Any] = {"cluster": cluster.name, "topic": topic, "decision": row["decision"], "notes": []}
    verdicts: list[PolicyVerdict] = []
    if row["phase"] is not None:
        answer["notes"].append(f"{row['phase']} {row['outcome']}: {row['error']}: {row['error_message']}")
    elif row["decision"] in (Action.CREATE, Action.DELETE):
        action = Action(row["decision"])
        rules = [each for each in made if each.action is action]
        if action is Action.CREATE:
            # Deletes come first, as in a run: those that will be sent make room.
            rules = _of_create(ledger, settings, rules, mine, answer["notes"])
            rows = rows.transform(deletes_evaluated(made, known, settings))
            rows = _with_resolved(rows, mine, _validate_only(settings, cluster, found[0].asDict(), answer["notes"]))
        evaluated_rows = rows.transform(policies.verdicts(rules, known)).where(mine)
        evaluated_row = evaluated_rows.orderBy(F.col("phase").isNotNull()).limit(1).collect()[0]
        if evaluated_row["phase"] is not None:
            answer["notes"].append("{phase} {outcome}: {error}: {error_message}".format(**evaluated_row.asDict()))
        verdicts = verdicts_on(evaluated_row, rules, row)
    elif row["decision"] == Action.ADD_PARTITIONS or row["alters"] is not None:
        rows = rows.transform(deletes_evaluated(made, known, settings)).transform(materialised)
        for action in CHANGES:
            evaluated_rows = rows if action is Action.ADD_PARTITIONS else rows.where(mine).transform(with_alters)
            rules = [each for each in made if each.action is action]
            evaluated_rows = evaluated_rows.transform(policies.verdicts(rules, known)).where(mine)
            changing = evaluated_rows.where(F.col("decision") == action.value).withColumns(_effects())
            for each in changing.collect():
                verdicts += _of_change(each.asDict(), rules, answer["notes"])
    elif row["live"] and not row["internal"] and not is_moved:
        answer["notes"].append(f"{row['decision']}: evaluated as if it were created now as it is")
        _, configs = describe(ledger.spark, settings.kafka, [cluster], seen.topics.where(mine), seen)
        living = rows.transform(as_creates(configs, settings.ignored_configs))
        rules = [each for each in made if each.action is Action.CREATE]
        (lives,) = living.transform(policies.verdicts(rules, known)).where(mine).collect()
        verdicts = verdicts_on(lives, rules, lives.asDict(recursive=True))
    elif not is_moved:
        answer["notes"].append(f"{row['decision'] or 'internal to Kafka'}: there is nothing to evaluate")
    if moved is not None and is_moved:
        rules = [each for each in made if each.action is ReplicaAction.REASSIGN]
        evaluated_rows = moved.transform(policies.verdicts(rules, known)).where(mine & is_move())
        for each in evaluated_rows.withColumns(_effects()).collect():
            verdicts += _of_change(each.asDict(), rules, answer["notes"])
    print_answer(answer, verdicts, as_json=as_json)
    return ExitCode.DONE


def _of_create(ledger: Ledger, settings: Settings, rules: list[Policy], mine: Column, notes: list[str]) -> list[Policy]:
    """Return the policies of a create; with a note, those of a topic that they only warn about."""
    created = recreated.created_before(ledger, settings)
    if created is None or created.where(mine).isEmpty():
        return rules
    notes.append('this ledger created it before, so policies only warn: [policies] recreated = "exempt"')
    return recreated.as_warnings(rules)


def observed(
    ledger: Ledger, settings: Settings, cluster: ClusterSettings, *tables: Table
) -> tuple[DataFrame, Observation]:
    """Return the validated manifests of a cluster, and observe it; creates `tables`, too, if they don't exist.

    Raises GuardStopped if it isn't the expected cluster.
    """
    ledger.ensure(MANIFESTS, USAGES, *tables)
    validated = ledger.read(MANIFESTS).transform(manifests.validated_by(settings, [cluster.name]))
    seen = observe(ledger, settings, [cluster], validated.where(F.col("phase").isNull()))
    refused = seen.statuses[cluster.name].refused
    if refused is not None:
        raise GuardStopped(refused.message)
    return validated, seen


def _moves(
    spark: SparkSession,
    settings: Settings,
    cluster: ClusterSettings,
    validated: DataFrame,
    seen: Observation,
    rows: DataFrame,
    configs: DataFrame | None,
) -> DataFrame | None:
    """Return `rows` with the moves of replicas that a run would plan on the cluster; None if runs plan none there."""
    wanted = brought_about(validated, settings.changes, list(ReplicaAction))
    if cluster.name not in wanted.replicas.moves:
        return None
    answers = moving.planned(wanted.marked, seen, sizes_on(spark, [cluster], settings.kafka), wanted.replicas)
    return rows.transform(placing.with_moves(answers, validated, seen, configs)).transform(materialised)


def print_answer(answer: Mapping[str, Any], verdicts: Sequence[PolicyVerdict], *, as_json: bool) -> None:
    """Print the verdicts on one resource. `answer`: its name, its decision and notes."""
    if as_json:
        click.echo(document(ExitCode.DONE, {**answer, "verdicts": [asdict(each) for each in verdicts]}))
    else:
        _render(answer, verdicts)


def _effects() -> dict[str, Column]:
    """Return the effects of a change, by the guard that counts them."""
    return {"_max_losses": effects.losses(), "_max_disruptions": effects.disruptions()}


def _of_change(row: Mapping[str, Any], rules: Sequence[Policy], notes: list[str]) -> Sequence[PolicyVerdict]:
    """Return the verdicts on a change, and add the change to `notes`."""
    if row["phase"] is not None:
        notes.append("{decision} {outcome}: {error}: {error_message}".format(**row))
        return []
    what = change_in_words(row["decision"], row["topic"], row["before"], row["after"])
    notes.append(f"{row['decision']}: {what}")
    for guard in ("max_losses", "max_disruptions"):
        if row[f"_{guard}"] is not None:
            notes.append(f"counts for guards.{guard}: {row[f'_{guard}']}")
    return verdicts_on(row, rules, row)


def verdicts_on(
    evaluated: Row | Mapping[str, Any], rules: Sequence[Policy], row: Mapping[str, Any], inputs: str | None = None
) -> list[PolicyVerdict]:
    """Return the verdicts of `policies.verdicts` on a row; `inputs` stands for those that a rule doesn't return."""
    by_default = _declared(row) if inputs is None else inputs
    return [_verdict(each, rule.options, by_default) for each, rule in zip(evaluated["verdicts"], rules, strict=True)]


def _verdict(evaluated: Row, settings: Mapping[str, object], by_default: str) -> PolicyVerdict:
    verdict, message, inputs = "fine", None, evaluated["inputs"]
    if inputs is None and evaluated["asked"]:
        # A user's own rule needn't return its inputs.
        inputs = by_default
    if not evaluated["asked"]:
        verdict = "not asked"
    elif evaluated["reason"] is not None:
        verdict, message = "broken", evaluated["reason"]
    elif evaluated["unjudgeable"] is not None:
        verdict, message = "unjudgeable", evaluated["unjudgeable"]
    if message is not None and evaluated["mode"] == "warn":
        message = WARNING + message
    return PolicyVerdict(
        policy=evaluated["policy"],
        action=evaluated["action"],
        mode=evaluated["mode"],
        settings=dict(settings),
        verdict=verdict,
        inputs=inputs,
        message=message,
    )


def _declared(row: Mapping[str, Any]) -> str:
    """Return the values that a topic's manifest declares, in words."""
    named = ("num_partitions", "replication_factor", "assignments", "configs", "owner", "labels")
    return "; ".join(f"{name} {_value(row[name])}" for name in named if row[name] not in (None, {}))


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True)


def _validate_only(
    settings: Settings, cluster: ClusterSettings, row: Mapping[str, Any], notes: list[str]
) -> TopicResult | None:
    """Return the values that the broker would resolve for a create; None, with a note, if it refuses."""
    assignments = row["assignments"]
    own = {"resource": row["topic"], "action": Action.CREATE, "topic_id": None, "batch": 0, "maybe_sent": False}
    planned = {**row, **own}
    planned["assignments"] = None if assignments is None else list(assignments.items())
    with ClusterAdmin(cluster, settings.kafka) as admin:
        response = admin.create_topics([target(planned)], validate_only=True)
    result = response.results[row["topic"]]
    if result.error_code:
        notes.append(f"the broker refuses it by validateOnly: {error_name(result.error_code)}: {result.error_message}")
        return None
    return result


def _with_resolved(rows: DataFrame, mine: Column, result: TopicResult | None) -> DataFrame:
    if result is None:
        return rows
    configs = [F.lit(part) for each in result.configs or () for part in (each.name, each.value)]
    values = {
        "resolved_num_partitions": F.lit(result.num_partitions),
        "resolved_replication_factor": F.lit(result.replication_factor),
        "resolved_configs": F.create_map(*configs) if configs else F.lit(None),
    }
    resolved = {
        name: F.when(mine, value.cast(DECIDED[name].dataType)).otherwise(F.col(name)) for name, value in values.items()
    }
    return rows.withColumns({**resolved, "validated": F.col("validated") | mine})


def _render(answer: Mapping[str, Any], verdicts: Sequence[PolicyVerdict]) -> None:
    console = text_console(200)
    named = next(answer[each] for each in (TOPIC, *(kind.resource_type for kind in NAMES)) if each in answer)
    title = f"{named} of {answer['cluster']}: {answer['decision'] or 'refused before a decision'}"
    console.print(cell(title))
    for note in answer["notes"]:
        console.print(cell(with_units(note)), soft_wrap=True)
    if not verdicts:
        return
    grid = grid_of("policy", "action", "settings", "mode", "verdict", "inputs", "message")
    for each in verdicts:
        grid.add_row(
            cell(each.policy),
            each.action,
            cell(_as_text(each.settings)),
            each.mode,
            each.verdict,
            cell(with_units(each.inputs or "")),
            cell(with_units(each.message or "")),
        )
    console.print(grid)
