"""Policies are checked as a whole before anything is asked or sent: all problems of a file are told at once."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import Column, SparkSession

from tests.unit.frames import by_topic, decision_rows, policy_facts
from topicledger import policies
from topicledger.config.reading import load_settings
from topicledger.config.settings import OF_EVERY_POLICY, Settings
from topicledger.errors import SettingsError
from topicledger.model import Action
from topicledger.policies import Policy, RowRule, built_in
from topicledger.resources import building

pytestmark = pytest.mark.usefixtures("spark")

MINIMAL = """
[tables]
root = "data/ledger"
[clusters.orders]
bootstrap_servers = ["localhost:9092"]
[clusters.payments]
bootstrap_servers = ["localhost:9093"]
"""

Load = Callable[[str], Settings]
Problems = Callable[[str], list[str]]
Module = Callable[[str], str]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str) -> Settings:
        path = tmp_path / "settings.toml"
        path.write_text(MINIMAL + dedent(text), encoding="utf-8")
        return load_settings(path)

    return load_text


@pytest.fixture
def problems_of(load: Load, tmp_path: Path) -> Problems:
    """Return the problems without the file's name, which begins each line."""

    def problems(text: str) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            building.from_settings(load(text))
        prefix = f"{tmp_path / 'settings.toml'}: "
        lines = str(caught.value).split("\n")
        assert all(line.startswith(prefix) for line in lines), lines
        return [line.removeprefix(prefix) for line in lines]

    return problems


def create(use: str, settings: str = "") -> str:
    return f"[[policies.create]]\nuse = '{use}'\n{settings}\n"


def delete(use: str, settings: str = "") -> str:
    return f"[[policies.delete]]\nuse = '{use}'\n{settings}\n"


def test_without_policies_only_those_hold_that_nothing_turns_off(load: Load) -> None:
    """C16, D9"""
    made = building.from_settings(load(""))
    assert [(each.name, each.action.value, each.error.value) for each in made] == [
        ("internal_topic", "delete", "POLICY_VIOLATION"),
        ("name_collision", "create", "NAME_COLLISION"),
    ]
    assert all(each.mode == "refuse" and not each.users_own and not each.clusters for each in made)


def test_policies_are_made_in_the_order_of_the_settings_each_with_its_own(load: Load) -> None:
    """P4"""
    made = building.from_settings(
        load(
            """
            [[policies.create]]
            use = "num_partitions"
            max = 12
            mode = "warn"
            [[policies.delete]]
            use = "owner_required"
            [[policies.create]]
            use = "num_partitions"
            min = 3
            clusters = ["orders", "payments"]
            owners = ["shop"]
            labels = {tier = "1", stage = ""}
            [[policies.create]]
            use = "owner_required"
            values = ["shop"]
            """
        )
    )[2:]
    assert [(each.action.value, each.name, each.mode, dict(each.settings)) for each in made] == [
        ("delete", "owner_required", "refuse", {}),
        ("create", "num_partitions", "warn", {"max": 12}),
        ("create", "num_partitions", "refuse", {"min": 3}),
        ("create", "owner_required", "refuse", {"values": ["shop"]}),
    ]
    scoped = made[2]
    assert (scoped.clusters, scoped.owners) == (("orders", "payments"), ("shop",))
    assert scoped.labels == {"tier": "1", "stage": ""}
    assert not any(each.users_own for each in made)


BUILT_IN = [(action, name) for action in built_in.BUILT_IN for name in built_in.BUILT_IN[action]]


@pytest.mark.parametrize(("action", "name"), BUILT_IN, ids=lambda each: str(each))
def test_built_in_policies_have_a_docstring_and_typed_settings(action: Action, name: str) -> None:
    factory = built_in.BUILT_IN[action][name]
    assert factory.__name__ == name
    assert (factory.__doc__ or "").split("\n")[0].endswith(".")
    for option in building.options(factory):
        assert option.type is not None
        assert building.type_name(option.type)
        assert option.name not in OF_EVERY_POLICY, "the settings file would never hand it over"


def test_the_digest_changes_with_any_setting_of_a_policy(load: Load) -> None:
    """A run is not taken up under other rules."""
    texts = ["", "max = 3", "mode = 'warn'", "clusters = ['orders']", "owners = ['a']", "labels = {a = 'b'}"]
    digests = [load(create("num_partitions", text)).digest() for text in texts]
    digests.append(load(delete("num_partitions")).digest())
    digests.append(load("").digest())
    assert len(set(digests)) == len(digests)
    assert load(create("num_partitions", "mode = 'refuse'")).digest() == digests[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            create("partition_budgt", "max = 3"),
            "policies.create[1]: there is no create policy `partition_budgt`; did you mean `partition_budget`?",
        ),
        (create("In_Us"), "policies.create[1]: there is no create policy `In_Us`; known: `config_range`, "),
        (delete("in_used"), "policies.delete[1]: there is no delete policy `in_used`; did you mean `in_use`?"),
        (create("in_use"), "policies.create[1]: in_use is a policy of deletes: write it under [[policies.delete]]"),
        (
            delete("partition_budget", "max = 3"),
            "policies.delete[1]: partition_budget is a policy of creates: write it under [[policies.create]]",
        ),
        (create("name_collision"), "policies.create[1]: name_collision always holds and has no settings: leave it out"),
        (delete("internal_topic"), "policies.delete[1]: internal_topic always holds and has no settings: leave it out"),
        (create("internal_topic"), "policies.create[1]: internal_topic always holds and has no settings: leave it out"),
        (
            create("owner_required") + create("a\\u001Bb").replace("'", '"'),
            r"policies.create[2]: there is no create policy `a\x1bb`; known: ",
        ),
    ],
)
def test_a_policy_that_there_is_not_is_an_error_with_the_nearest_name(
    problems_of: Problems, text: str, problem: str
) -> None:
    (found,) = problems_of(text)
    assert found.startswith(problem)


LIMIT = 2**31 - 1
CONFIG_LIMIT = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (create("partition_budget"), "partition_budget: `max`, an integer, is missing"),
        (create("partition_budget", "max = 3.0"), "partition_budget: `max` must be an integer"),
        (create("partition_budget", "max = true"), "partition_budget: `max` must be an integer"),
        (create("partition_budget", "max = '3'"), "partition_budget: `max` must be an integer"),
        (create("partition_budget", "max = -1"), f"partition_budget: max must be from 0 to {LIMIT}"),
        (create("partition_budget", f"max = {2**31}"), f"partition_budget: max must be from 0 to {LIMIT}"),
        (create("replicas_per_broker", "max = -1"), f"replicas_per_broker: max must be from 0 to {LIMIT}"),
        (create("topics_per_owner", f"max = {10**30}"), f"topics_per_owner: max must be from 0 to {LIMIT}"),
        (create("partitions_per_owner", "max = -1"), f"partitions_per_owner: max must be from 0 to {LIMIT}"),
        (create("distinct_racks", "max = 3"), "distinct_racks: unknown setting `max`; it takes none"),
        (create("num_partitions", "most = 3"), "num_partitions: unknown setting `most`; known: `max`, `min`"),
        (create("num_partitions", "maxx = 3"), "num_partitions: unknown setting `maxx`; did you mean `max`?"),
        (create("num_partitions", "max = []"), "num_partitions: `max` must be an integer"),
        (create("num_partitions", "min = 5\nmax = 4"), "num_partitions: max is 4, below min 5"),
        (create("num_partitions", "min = 0"), f"num_partitions: min must be from 1 to {LIMIT}"),
        (create("num_partitions", "max = 0"), "num_partitions: max is 0, below min 1"),
        (create("replication_factor", "min = 3\nmax = 1"), "replication_factor: max is 1, below min 3"),
        (create("replication_factor", f"max = {10**30}"), f"replication_factor: max must be at most {LIMIT}"),
        (
            create("num_partitions", "max = 3\nneeds = 'full'"),
            "num_partitions: `needs` is for rules about several topics, but this rule is about single topics",
        ),
        (create("configs_allowed"), "configs_allowed: `names`, a list, each a string, is missing"),
        (create("configs_allowed", "names = 'a'"), "configs_allowed: `names` must be a list, each a string"),
        (create("configs_required", "names = [1]"), "configs_required: `names` must be a list, each a string"),
        (create("configs_forbidden", "names = []"), "configs_forbidden: give at least one, none of them empty"),
        (create("configs_forbidden", "names = [' ']"), "configs_forbidden: give at least one, none of them empty"),
        (create("config_values", "config = 'a'\nvalues = []"), "config_values: give at least one, none of them empty"),
        (create("config_values", "config = ' '\nvalues = ['a']"), "config_values: config must not be empty"),
        (create("config_range", "config = 'a'"), "config_range: give min, max or both"),
        (create("config_range", "config = ''\nmin = 1"), "config_range: config must not be empty"),
        (create("config_range", "config = 'a'\nmin = 0.5\nmax = 0.4"), "config_range: max is 0.4, below min 0.5"),
        (
            create("config_range", "config = 'a'\nmin = '1'"),
            "config_range: write '1' as a number without quotes: a has no unit",
        ),
        (
            create("config_range", "config = 'a'\nmin = true"),
            "config_range: `min` must be an integer or a number or a string",
        ),
        (
            create("config_range", "config = 'retention.ms'\nmin = '1 week'"),
            'config_range: retention.ms is "1 week"; write a whole number or a duration such as 7d or 12h',
        ),
        (
            create("config_range", "config = 'retention.ms'\nmin = '2d'\nmax = '1d'"),
            "config_range: max is 1d, below min 2d",
        ),
        (
            create("config_range", "config = 'cleanup.policy'\nmin = 1"),
            "config_range: cleanup.policy is no number but a list; use config_values",
        ),
        (
            create("config_values", "config = 'cleanup.policy'\nvalues = ['compacted']"),
            'config_values: cleanup.policy is "compacted"; Kafka accepts compact, delete',
        ),
        (
            create("config_range", "config = 'a'\nmax = nan"),
            f"config_range: min and max must be numbers from -{CONFIG_LIMIT} to {CONFIG_LIMIT}",
        ),
        (
            create("config_range", "config = 'a'\nmin = -inf"),
            f"config_range: min and max must be numbers from -{CONFIG_LIMIT} to {CONFIG_LIMIT}",
        ),
        (
            create("config_range", f"config = 'a'\nmax = {10**35}"),
            f"config_range: min and max must be numbers from -{CONFIG_LIMIT} to {CONFIG_LIMIT}",
        ),
        (
            create("config_range", "config = 'retention.mss'\nmin = 1"),
            "config_range: there is no config `retention.mss`; did you mean `retention.ms`?",
        ),
        (
            create("config_values", "config = 'Cleanup.policy'\nvalues = ['compact']"),
            "config_values: there is no config `Cleanup.policy`; did you mean `cleanup.policy`?",
        ),
        *(
            (
                create(name, "names = ['retention.ms', 'fork.only.setting', 'flush.mss']"),
                f"{name}: there is no config `flush.mss`; did you mean `flush.ms`?",
            )
            for name in ("configs_required", "configs_forbidden")
        ),
        (create("min_insync_replicas", "spare = -1"), f"min_insync_replicas: spare must be from 0 to {LIMIT}"),
        (create("topic_name_prefix", "separator = ''"), "topic_name_prefix: of and separator must not be empty"),
        (create("topic_name_prefix", "of = ' '"), "topic_name_prefix: of and separator must not be empty"),
        (create("owner_required", "values = 'a'"), "owner_required: `values` must be a list, each a string"),
        (create("labels_required", "names = []"), "labels_required: give at least one, none of them empty"),
        (delete("protected_topics", "patterns = []"), "protected_topics: give at least one pattern"),
        (delete("no_recent_records", "days = 0"), "no_recent_records: days must be from 1 to 36500"),
        (delete("no_recent_records", "days = 1000000"), "no_recent_records: days must be from 1 to 36500"),
        (delete("no_recent_records", "days = 1.5"), "no_recent_records: `days` must be an integer"),
        (delete("deletes_per_owner", "max = -1"), f"deletes_per_owner: max must be from 0 to {LIMIT}"),
        (delete("deletes_fraction", "max = 1.01"), "deletes_fraction: max must be from 0 to 1"),
        (delete("deletes_fraction", "max = -0.1"), "deletes_fraction: max must be from 0 to 1"),
        (delete("deletes_fraction", "max = nan"), "deletes_fraction: max must be from 0 to 1"),
        (delete("deletes_fraction", "max = '10%'"), "deletes_fraction: `max` must be a number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(problems_of: Problems, text: str, problem: str) -> None:
    kind = "delete" if "policies.delete" in text else "create"
    assert problems_of(text) == [f"policies.{kind}[1]: {problem}"]


@pytest.mark.parametrize(
    "text",
    [
        create("partition_budget", "max = 0"),
        create("num_partitions", "min = 4\nmax = 4"),
        create("num_partitions"),
        create("config_range", "config = 'a'\nmin = 1\nmax = 1.0"),
        create("config_range", f"config = 'retention.ms'\nmax = {CONFIG_LIMIT}"),
        create("labels_required", "names = ['a']\nvalues = []"),
        delete("deletes_fraction", "max = 1"),
        delete("deletes_fraction", "max = 0"),
        delete("no_recent_records", "days = 36500"),
    ],
)
def test_settings_at_their_limits_are_taken(load: Load, text: str) -> None:
    assert len(building.from_settings(load(text))) == 3


def test_all_problems_of_a_file_are_told_at_once_each_with_its_place(problems_of: Problems) -> None:
    found = problems_of(
        """
        [[policies.create]]
        use = "num_partition"
        [[policies.create]]
        use = "num_partitions"
        [[policies.create]]
        use = "config_range"
        mx = 3
        min = true
        [[policies.create]]
        use = "no.such.module:factory"
        [[policies.delete]]
        use = "deletes_fraction"
        max = 2
        """
    )
    assert [problem.split(":")[0] for problem in found] == ["policies.delete[1]", "policies.create[1]"] + [
        "policies.create[3]"
    ] * 3 + ["policies.create[4]"]
    assert "policies.create[3]: config_range: unknown setting `mx`; did you mean `max`?" in found
    assert "policies.create[3]: config_range: `config`, a string, is missing" in found


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("(a", "missing ): (a"),
        ("a)", "unexpected ): a)"),
        ("[a", "missing ]: [a"),
        ("a**", "bad repetition operator: **"),
        ("a{2000}", "invalid repetition size: {2000}"),
        ("((a{100}){100}){100}", "invalid repetition size: {100}"),
    ],
)
@pytest.mark.parametrize("policy", ["topic_name_pattern", "protected_topics"])
def test_an_invalid_pattern_is_refused_with_the_reason(
    problems_of: Problems, policy: str, pattern: str, reason: str
) -> None:
    if policy == "topic_name_pattern":
        (found,) = problems_of(create(policy, f"pattern = '{pattern}'"))
    else:
        (found,) = problems_of(delete(policy, f"patterns = ['fine', '{pattern}']"))
    assert f"{policy}: pattern {pattern!r} is not valid in RE2: " in found
    assert reason in found


def test_the_reason_why_a_long_pattern_is_refused_is_not_cut_off(problems_of: Problems) -> None:
    (found,) = problems_of(create("topic_name_pattern", f"pattern = '^({'orders|' * 30}payments'"))
    assert "missing ): " in found


@pytest.mark.timeout(120)
def test_exponential_patterns_of_other_engines_are_evaluated_at_once(load: Load, spark: SparkSession) -> None:
    made = building.from_settings(
        load(
            create("topic_name_pattern", "pattern = '^(a+)+$'") + delete("protected_topics", "patterns = ['(a|aa)+$']")
        )
    )
    rows = decision_rows(
        spark,
        {"topic": "a" * 249, "decision": "create"},
        {"topic": "a" * 248 + "-", "decision": "create"},
        {"topic": "-" + "a" * 248, "decision": "delete"},
        {"topic": "a" * 247 + "--", "decision": "delete"},
    )
    evaluated = by_topic(rows.transform(policies.evaluate(made, policy_facts(spark))))
    assert {topic[-2:]: row["outcome"] for (_, topic), row in evaluated.items() if topic.startswith("a")} == {
        "aa": None,
        "a-": "refused",
        "--": None,
    }
    assert evaluated["main", "-" + "a" * 248]["outcome"] == "refused"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("clusters = ['order']", "`policies.create[1].clusters` names unknown cluster `order`; did you mean `orders`?"),
        ("clusters = 'orders'", "`policies.create[1].clusters` must be a list of strings, at least one"),
        ("clusters = []", "`policies.create[1].clusters` must be a list of strings, at least one"),
        ("owners = []", "`policies.create[1].owners` must be a list of strings, at least one"),
        ("owners = [' ']", "`policies.create[1].owners` has a blank string, which stands for nothing"),
        ("owners = ['']", "`policies.create[1].owners` must be a list of strings, at least one"),
        ("owners = [1]", "`policies.create[1].owners` must be a list of strings, at least one"),
        ("owners = 'shop'", "`policies.create[1].owners` must be a list of strings, at least one"),
        ("labels = {}", "`policies.create[1].labels` must be a table of strings, at least one"),
        ("labels = {tier = 1}", "`policies.create[1].labels` must be a table of strings, at least one"),
        ("labels = ['tier']", "`policies.create[1].labels` must be a table of strings, at least one"),
        ("mode = 'wran'", '`policies.create[1].mode` must be "refuse" or "warn"'),
        ("mode = ['warn']", '`policies.create[1].mode` must be "refuse" or "warn"'),
        ("mode = true", '`policies.create[1].mode` must be "refuse" or "warn"'),
        ("needs = 'all'", '`policies.create[1].needs` must be "full" or "visible"'),
        ("needs = ['full']", '`policies.create[1].needs` must be "full" or "visible"'),
    ],
)
def test_scope_and_mode_of_a_policy_are_checked(problems_of: Problems, settings: str, problem: str) -> None:
    assert problems_of(create("distinct_racks", settings)) == [problem]


@pytest.mark.parametrize("scope", ["all", "changes"])
@pytest.mark.parametrize(
    ("section", "use", "settings"),
    [
        ("create", "partition_budget", "max = 3"),
        ("create", "topic_name_pattern", "pattern = 'a'"),
        ("delete", "owner_required", ""),
        ("change", "partitions_growth", "max_factor = 2.0"),
        ("acl", "acl_owner", ""),
        ("quota", "quota_range", "limit = 'producer_byte_rate'\nmax = 5"),
        ("group_config", "owner_required", ""),
    ],
)
def test_a_scope_without_a_meaning_is_refused(
    load: Load, problems_of: Problems, section: str, use: str, settings: str, scope: str
) -> None:
    text = f"[[policies.{section}]]\nuse = '{use}'\nscope = '{scope}'\n{settings}\n"
    (found,) = problems_of(text)
    assert found.startswith(
        f"policies.{section}[1]: {use}: `scope` is for policies of creates that also evaluate altered configs or "
        "moves: leave it out; known: "
    )
    assert "replication_factor" in found
    assert "partition_budget" not in found.partition("known: ")[2]
    with pytest.raises(SettingsError, match="`scope` is for policies of creates"):
        building.check(load(text))


@pytest.mark.parametrize("name", ["partition_budget", "replicas_per_broker", "topics_per_owner"])
def test_the_registry_knows_which_policies_need_full_sight(load: Load, name: str) -> None:
    *_, made = building.from_settings(load(create(name, "max = 3")))
    assert made.needs_full_sight == (name in built_in.FULL_SIGHT)


def test_a_scope_has_a_meaning_for_configs_and_moves(load: Load) -> None:
    text = create("replication_factor", "min = 3\nscope = 'all'") + create(
        "configs_forbidden", "names = ['a']\nscope = 'changes'"
    )
    building.check(load(text))
    assert building.from_settings(load(text))


def test_every_unknown_cluster_is_named(problems_of: Problems) -> None:
    found = problems_of(
        create("distinct_racks", "clusters = ['orders', 'x\\ny', 'z']".replace("'", '"')) + delete("in_use", "owners=1")
    )
    assert found == [
        r"`policies.create[1].clusters` names unknown cluster `x\ny`; known: `orders`, `payments`",
        "`policies.create[1].clusters` names unknown cluster `z`; known: `orders`, `payments`",
        "`policies.delete[1].owners` must be a list of strings, at least one",
    ]


def test_clusters_that_are_no_table_are_told_of_once(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("clusters = 1\n[tables]\nroot = 'x'\n[[policies.create]]\nuse = 'distinct_racks'\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert str(caught.value).count("`clusters` must be a table") == 1


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """Writes a module and returns its name."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    names = (f"house_rules_{number}" for number in itertools.count())
    written = []

    def write(source: str) -> str:
        name = next(names)
        (folder / f"{name}.py").write_text(dedent(source), encoding="utf-8")
        written.append(name)
        importlib.invalidate_caches()
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


RULES = """
    from __future__ import annotations
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal, Optional, Protocol
    from pyspark.sql import functions as F

    ANSWER = 42

    class Named(Protocol):
        name: str

    def reason(*, text: str = "no"):
        return F.lit(text)

    def of_topics(*, most: int):
        return lambda topics, facts: topics.withColumn("reason", F.lit(None).cast("string"))

    def typed(
        *,
        one: Optional[int] = None,
        some: Sequence[str] = (),
        table: Mapping[str, int] = {},
        word: Literal["a", "b"] = "a",
        share: float = 0.5,
        flag: bool = False,
        anything: Any = None,
        named: Named = None,
        plain: list = [],
    ):
        return F.lit(None).cast("string")

    def untyped(most, text="x"):
        return F.lit(f"{most} {text}")

    def unresolved(*, most: NoSuchType):
        return F.lit(str(most))

    def open_to_all(*, first: int, **rest):
        return F.lit(f"{first} {sorted(rest)}")

    def scoped(*, owners: list[str], labels=None):
        return F.lit("no")

    def refuses(*, most: int):
        raise ValueError(f"most is {most}\\nthat is too much")

    def fails():
        return {}["tier"]

    def returns_text():
        return "no"

    def positional(most, /):
        return F.lit(str(most))
"""


def users_own(made: Sequence[Policy]) -> Policy:
    (policy,) = (each for each in made if each.users_own)
    return policy


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("reason", ""),
        ("reason", "text = 'never'"),
        ("of_topics", "most = 3"),
        ("untyped", "most = [1, 'a']"),
        ("untyped", "most = 1\ntext = 2"),
        ("unresolved", "most = 'x'"),
        ("open_to_all", "first = 1\nsecond = 2"),
        ("typed", "one = 1\nsome = ['a']\ntable = {a = 1}\nword = 'b'\nshare = 1\nflag = true\nplain = [1, 'a']"),
        ("typed", "anything = 1979-05-27\nnamed = 3"),
    ],
)
def test_a_factory_of_ones_own_gets_its_settings(load: Load, module: Module, name: str, settings: str) -> None:
    """P4"""
    use = f"{module(RULES)}:{name}"
    policy = users_own(building.from_settings(load(create(use, f"{settings}\nmode = 'warn'\nowners = ['a']"))))
    assert (policy.name, policy.action, policy.mode, policy.owners) == (use, Action.CREATE, "warn", ("a",))
    assert isinstance(policy.rule, Column | RowRule) or callable(policy.rule)
    assert set(policy.settings) == {line.split(" = ")[0] for line in settings.split("\n") if line}


@pytest.mark.parametrize(
    ("name", "settings", "problems"),
    [
        ("reson", "", ["MODULE has no `reson`; did you mean `reason`?"]),
        ("ANSWER", "", ["`ANSWER` is no function but int"]),
        ("reason", "text = 3", ["`text` must be a string"]),
        ("reason", "txt = 'a'", ["unknown setting `txt`; did you mean `text`?"]),
        ("of_topics", "", ["`most`, an integer, is missing"]),
        ("untyped", "", ["`most`, is missing"]),
        ("open_to_all", "first = 'x'\nsecond = 2", ["`first` must be an integer"]),
        ("refuses", "most = 9", [r"refuses: most is 9\nthat is too much"]),
        ("fails", "", ["fails failed: KeyError: 'tier'"]),
        ("returns_text", "", ["returns_text returned str, not a Column, a RowRule or a function of DataFrames"]),
        ("positional", "most = 1", ["positional failed: TypeError: positional() got some positional-only arguments"]),
        ("scoped", "owners = ['a']", ["its parameter `owners` is a setting of every policy: rename it"]),
        ("scoped", "labels = {a = 'b'}", ["its parameter `owners` is a setting of every policy: rename it"]),
        (
            "typed",
            "one = 'x'\nsome = [1]\ntable = {a = 'x'}\nword = 'c'\nshare = 'x'\nflag = 1\nplain = 'x'",
            [
                "`one` must be an integer",
                "`some` must be a list, each a string",
                "`table` must be a table",
                "`word` must be 'a' or 'b'",
                "`share` must be a number",
                "`flag` must be true or false",
                "`plain` must be list",
            ],
        ),
    ],
)
def test_a_factory_of_ones_own_that_is_broken_or_wrongly_set_is_told_of(
    problems_of: Problems, module: Module, name: str, settings: str, problems: list[str]
) -> None:
    """P4"""
    use = f"{module(RULES)}:{name}"
    found = problems_of(delete(use, settings))
    assert len(found) == len(problems)
    for line, problem in zip(found, problems, strict=True):
        assert line.startswith("policies.delete[1]: ")
        assert problem.replace("MODULE", use.split(":")[0]).replace("`ANSWER`", use) in line
        assert use.split(":")[0] in line


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_package", "can't be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        ("def reason(:", "can't be imported: SyntaxError: "),
        ("raise RuntimeError('not today')", "can't be imported: RuntimeError: not today"),
        ("import sys\nsys.exit(3)", "can't be imported: SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_of_with_what_to_do(
    problems_of: Problems, module: Module, source: str, problem: str
) -> None:
    name = module(source)
    (found,) = problems_of(create(f"{name}:reason"))
    assert found.startswith(f"policies.create[1]: {name}:reason {problem}")
    assert found.endswith("; install its package, or name it in --py-files")


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        ("no.such:factory", "can't be imported: ModuleNotFoundError: No module named 'no'"),
        (":factory", "can't be imported: ValueError: Empty module name"),
        (".here:factory", "can't be imported: TypeError: "),
        ("json:", "module json has no ``; known: "),
        ("json:dump:s", "module json has no `dump:s`; did you mean `dumps`?"),
        ("builtins:dict", "builtins:dict does not list its parameters: name a function of your own"),
        ("json:__name__", "json:__name__ is no function but str"),
    ],
)
def test_a_name_that_leads_nowhere_is_told_of(problems_of: Problems, use: str, problem: str) -> None:
    (found,) = problems_of(create(use))
    assert found.startswith("policies.create[1]: ")
    assert problem in found


@pytest.fixture
def installed(module: Module, tmp_path: Path) -> str:
    """A package that offers policies by entry points; the name of its module."""
    name = module(RULES)
    about = tmp_path / "modules" / "house-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        dedent(
            f"""
            [topicledger.policies]
            house_reason = {name}:reason
            house_answer = {name}:ANSWER
            house_broken = no.such.house:reason
            partition_budget = {name}:reason
            [other.policies]
            house_other = {name}:reason
            """
        )
    )
    return name


@pytest.mark.usefixtures("installed")
def test_an_installed_package_offers_policies_by_entry_points(load: Load) -> None:
    """P4"""
    policy = users_own(building.from_settings(load(delete("house_reason", "text = 'never'"))))
    assert (policy.name, policy.action, dict(policy.settings)) == ("house_reason", Action.DELETE, {"text": "never"})


@pytest.mark.usefixtures("installed")
def test_an_entry_point_never_takes_the_place_of_a_built_in_policy(load: Load) -> None:
    made = building.from_settings(load(create("partition_budget", "max = 3")))
    assert not any(each.users_own for each in made)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("use", "problem"),
    [
        ("house_reson", "there is no create policy `house_reson`; did you mean `house_reason`?"),
        ("house_reasn", "there is no create policy `house_reasn`; did you mean `house_reason`?"),
        ("elsewhere", "there is no create policy `elsewhere`; known: "),
        ("house_answer", "house_answer is no function but int"),
        ("house_broken", "house_broken can't be imported: ModuleNotFoundError: No module named 'no'"),
    ],
)
def test_an_entry_point_that_there_is_not_or_that_is_broken_is_told_of(
    problems_of: Problems, use: str, problem: str
) -> None:
    (found,) = problems_of(create(use))
    assert found.startswith(f"policies.create[1]: {problem}")
