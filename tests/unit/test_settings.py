"""Settings are checked as a whole, and secrets stay references until a client is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider

from topicledger.config.reading import load_settings
from topicledger.config.roots import is_in_catalog
from topicledger.config.secrets import check_references, redact, resolve_client_options, secret_values, words_of
from topicledger.config.settings import AuditSettings, ClusterSettings, Settings
from topicledger.config.severities import SEVERITIES, DriftKind, Severity
from topicledger.errors import ExitCode, SecretError, SettingsError, UsageError
from topicledger.text import nearest, show

MINIMAL = '[tables]\nroot = "data/ledger"\n[clusters.orders]\nbootstrap_servers = ["localhost:9092"]\n'
EXAMPLE = Path(__file__).parents[2] / "conf" / "topicledger.toml"

Load = Callable[[str], Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str) -> Settings:
        path = tmp_path / "settings.toml"
        path.write_text(text, encoding="utf-8")
        return load_settings(path)

    return load_text


@pytest.fixture
def problems_of(load: Load, tmp_path: Path) -> Callable[[str], list[str]]:
    def problems(text: str) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            load(text)
        prefix = f"{tmp_path / 'settings.toml'}: "
        lines = str(caught.value).split("\n")
        assert all(line.startswith(prefix) for line in lines)
        return [line.removeprefix(prefix) for line in lines]

    return problems


Problems = Callable[[str], list[str]]


def client(**options: str | int) -> ClusterSettings:
    return ClusterSettings(name="orders", bootstrap_servers=("localhost:9092",), client=options)


class AnyProvider(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return "a-token"


def failing_provider() -> object:
    raise RuntimeError("the password hunter22 was refused")


def test_the_example_in_conf_is_valid_and_says_the_defaults() -> None:
    settings = load_settings(EXAMPLE)
    defaults = load_settings_defaults()
    assert (settings.kafka, settings.guards, settings.audit) == (defaults.kafka, defaults.guards, defaults.audit)
    assert settings.views == defaults.views


def load_settings_defaults() -> Settings:
    settings = load_settings(EXAMPLE)
    return Settings(path=settings.path, tables=settings.tables, clusters=settings.clusters)


def test_omitted_settings_get_defaults(load: Load) -> None:
    settings = load(MINIMAL)
    assert settings.tables.root == "data/ledger"
    assert settings.clusters["orders"] == client()
    assert (settings.kafka.connect_timeout, settings.kafka.operation_timeout) == (30.0, 10.0)
    assert settings.kafka.max_batch_records == 8000
    assert settings.guards.max_deletes == 0
    assert settings.guards.max_removed_rows == 0
    assert settings.policies.create == settings.policies.delete == ()


def test_every_setting_is_read(load: Load) -> None:
    settings = load(
        """
        [tables]
        root = "lake.ledger"
        [clusters.orders]
        bootstrap_servers = ["a:1", "[::1]:9092", "b_1.example.com.:9092"]
        cluster_id = "abc"
        [clusters.orders.client]
        security_protocol = "SASL_SSL"
        ssl_check_hostname = false
        api_version = [2, 3]
        receive_buffer_bytes = 1000
        [kafka]
        connect_timeout = 5
        operation_timeout = 0.5
        max_batch_records = 10000
        [guards]
        max_deletes = 3
        [[policies.create]]
        use = "one"
        [[policies.create]]
        use = "two"
        mode = "warn"
        most = 3
        [[policies.delete]]
        use = "company.module:factory"
        """
    )
    orders = settings.cluster("orders")
    assert orders.bootstrap_servers == ("a:1", "[::1]:9092", "b_1.example.com.:9092")
    assert orders.client["api_version"] == (2, 3)
    assert (settings.kafka.connect_timeout, settings.kafka.max_batch_records) == (5.0, 10000)
    assert [(spec.use, spec.mode, spec.where) for spec in settings.policies.create] == [
        ("one", "refuse", "policies.create[1]"),
        ("two", "warn", "policies.create[2]"),
    ]
    assert settings.policies.create[1].options == {"most": 3}


def test_each_kind_of_drift_has_the_severity_it_is_given_or_none(load: Load) -> None:
    assert load(MINIMAL).audit == AuditSettings()
    assert set(load(MINIMAL).audit.severity) == set(SEVERITIES)
    text = '[audit]\nrequire_owner = true\nusage = true\nowners = ["a"]\n'
    text += '[audit.severity]\nmissing = "info"\nunmanaged = "ignore"\n'
    audit = load(MINIMAL + text).audit
    assert (audit.require_owner, audit.owners, audit.usage) == (True, ("a",), True)
    assert audit.severity[DriftKind.MISSING] is Severity.INFO
    assert set(SEVERITIES) - set(audit.severity) == {DriftKind.UNMANAGED}
    assert audit.severity[DriftKind.ASSIGNMENT] is Severity.WARNING


def test_audits_have_a_digest_of_their_own(load: Load) -> None:
    """Neither kind of run minds what bears on the other only."""
    plain, severe = load(MINIMAL), load(MINIMAL + '[audit.severity]\nmissing = "info"\n')
    guarded = load(MINIMAL + "[guards]\nmax_deletes = 1\n")
    assert plain.audit_digest() != severe.audit_digest()
    assert plain.digest() == severe.digest()
    assert plain.audit_digest() == guarded.audit_digest()
    assert plain.audit_digest() == load(MINIMAL + "[audit]\nusage = true\n").audit_digest(), "it is an argument"
    assert plain.audit_digest() != load(MINIMAL.replace("orders", "others")).audit_digest()


def test_all_problems_of_a_file_are_told_at_once(problems_of: Problems) -> None:
    found = problems_of(
        """
        guard = 1
        [tables]
        rooot = "x"
        [clusters.orders]
        bootstrap_servers = []
        [guards]
        max_delete = 3
        [kafka]
        operation_timeout = 0
        """
    )
    assert len(found) == 6
    assert "unknown key `guards.max_delete`; did you mean `max_deletes`?" in found
    assert "unknown key `guard`; did you mean `guards`?" in found


@pytest.mark.parametrize(
    ("addition", "problem"),
    [
        ("[guards]\nmax_plan_age = 0", "`guards.max_plan_age` must be above 0 (from 0.001 to"),
        ("[guards]\nmax_deletes = true", "`guards.max_deletes` must be an integer, not a boolean"),
        ("[guards]\nmax_removed_rows = -1", "`guards.max_removed_rows` must be between 0 and 2147483647"),
        ("[guards]\nmax_acl_deletes = -1", "`guards.max_acl_deletes` must be between 0 and 2147483647"),
        ("[acls]\nmanage = ['(']", "`acls.manage` pattern '(' is not valid in RE2"),
        ("[acls]\nmanage = 'User:a'", "`acls.manage` must be a list"),
        ("[acls]\nmanages = []", "unknown key `acls.manages`; did you mean `manage`?"),
        ("[guards]\nmax_deletes = 1.0", "`guards.max_deletes` must be an integer, not a float"),
        ("[guards]\nmax_deletes = -1", "`guards.max_deletes` must be between 0 and 2147483647"),
        ("[guards]\nmax_deletes = 0x" + "f" * 5000, "`guards.max_deletes` must be between 0 and 2147483647"),
        ("[kafka]\nconnect_timeout = '30'", "`kafka.connect_timeout` must be a number of seconds, not a string"),
        ("[kafka]\nconnect_timeout = inf", "`kafka.connect_timeout` must be above 0"),
        ("[kafka]\nconnect_timeout = nan", "`kafka.connect_timeout` must be above 0"),
        ("[kafka]\nmax_batch_records = 0", "`kafka.max_batch_records` must be between 1 and 10000"),
        ("[kafka]\nmax_batch_records = 10001", "refuses a larger request whole"),
        ("[kafka]\ncolour = 1", "unknown key `kafka.colour`; known: `connect_timeout`, `max_batch_records`, "),
        ("[policies.create]\nuse = 'x'", "must be a list of tables: write [[policies.create]] above each policy"),
        ("[[policies.create]]\nmode = 'warn'", "`policies.create[1].use` is missing"),
        ("[[policies.delete]]\nuse = 'x'\nmode = 'ignore'", '`policies.delete[1].mode` must be "refuse" or "warn"'),
        (
            "[changes]\nignore = ['retention.mss']",
            "`changes.ignore` names unknown config `retention.mss`; did you mean `retention.ms`?",
        ),
        (
            "[clusters.orders.changes]\nignore = ['Retention.ms']",
            "`clusters.orders.changes.ignore` names unknown config `Retention.ms`; did you mean `retention.ms`?",
        ),
        (
            "[changes]\nignore = ['retention.*']",
            "`changes.ignore` names unknown config `retention.*`; did you mean `retention.ms`?",
        ),
        ("[audit]\nowner = 'x'", "unknown key `audit.owner`; did you mean `owners`?"),
        ("[audit]\nrequire_owner = 'x'", "`audit.require_owner` must be true or false, not a string"),
        ("[audit]\nowners = 'x'", "`audit.owners` must be a list of strings, at least one"),
        ("[audit.severity]\nmising = 'info'", "unknown key `audit.severity.mising`; did you mean `missing`?"),
        (
            "[audit.severity]\nmissing = 'fatal'",
            '`audit.severity.missing` must be one of error, warning, info, ignore, not "fatal"',
        ),
        ("[audit.severity]\nmissing = 1", "`audit.severity.missing` must be a string, not an integer"),
        ("[[policies.created]]\nuse = 'x'", "unknown key `policies.created`; did you mean `create`?"),
        ("[clusters.b]\nbootstrap_servers = 'a:1'", "`clusters.b.bootstrap_servers` is a string: must be a list"),
        ("[clusters.b]\nbootstrap_servers = ['a']", '"a" is not "host:port"'),
        ("[clusters.b]\nbootstrap_servers = ['a:0']", '"a:0" is not "host:port"'),
        ("[clusters.b]\nbootstrap_servers = ['a:1,b:2']", "from 1 to 65535: write one string for each server"),
        (
            "[clusters.b]\nbootstrap_servers = ['a,b,c']",
            '"a,b,c" is not "host:port" with a port from 1 to 65535: write one',
        ),
        ("[clusters.b]\nbootstrap_servers = ['a:1 b:1']", "write one string for each server"),
        ("[clusters.b]\nbootstrap_servers = 'a:1,b:1'", 'must be a list of "host:port" strings, one for each server'),
        ("[clusters.b]\nbootstrap_servers = ['a..b:1']", '"a..b:1" is not "host:port" with a port from 1'),
        ("[clusters.b]\nbootstrap_servers = ['.a:1']", "between the dots of a host are 1 to 63 characters"),
        (f"[clusters.b]\nbootstrap_servers = ['{'a' * 64}:1']", "between the dots of a host are 1 to 63 characters"),
        ("[clusters.b]\nbootstrap_servers = ['[a..b]:1']", '"[a..b]:1" is not "host:port"'),
        ("[clusters.b]\ncluster_id = 'x'", "`clusters.b.bootstrap_servers` is missing"),
        ("[clusters]\n'' = {bootstrap_servers = ['a:1']}", "is not a valid cluster name"),
        ("[clusters]\n'a,b' = {bootstrap_servers = ['a:1']}", "contains a comma"),
        ("[clusters.orders.client]\nselector = 'x'", "`clusters.orders.client.selector` can't be set here"),
        ("[clusters.orders.client]\nbootstrap_servers = 'x'", "it belongs one level up"),
        ("[clusters.orders.client]\nmetrics_num_samples = 1", "can't be set here"),
        ("[clusters.orders.client]\nsasl_plain_user = 'x'", "did you mean `sasl_plain_username`?"),
        ("[clusters.orders.client]\nssl_check_hostname = 'no'", "must be true or false, not a string"),
        ("[clusters.orders.client]\nrequest_timeout_ms = true", "must be an integer, not a boolean"),
        ("[clusters.orders.client]\nsend_buffer_bytes = 'x'", "must be an integer, not a string"),
        ("[clusters.orders.client]\napi_version = [2, true]", "must be a list of integers such as [3, 9]"),
        ("[clusters.orders.client]\nssl_cafile = 1979-05-27", "must be a string, not a date or time"),
        ("[clusters.orders.client]\nssl_password = 'env:'", "is only `env:`"),
        ("[clusters.orders.client]\nsasl_oauth_token_provider = 'a.b.c'", 'must be "package.module:factory"'),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_wrong(problems_of: Problems, addition: str, problem: str) -> None:
    base = MINIMAL if not addition.startswith("[clusters]") else MINIMAL.split("[clusters", maxsplit=1)[0]
    found = problems_of(f"{base}{addition}\n")
    assert any(problem in each for each in found), found


@pytest.mark.parametrize("seconds", ["0", "-1", "-0.5", "0.0001"])
def test_an_operation_timeout_that_learns_no_outcome_is_refused_with_the_reason(
    problems_of: Problems, seconds: str
) -> None:
    """C12"""
    (problem,) = problems_of(f"{MINIMAL}[kafka]\noperation_timeout = {seconds}\n")
    assert "REQUEST_TIMED_OUT" in problem
    assert "outcome stays unknown" in problem


def test_no_clusters_is_an_error(problems_of: Problems) -> None:
    assert any("no clusters" in each for each in problems_of('[tables]\nroot = "x"\n'))
    assert "`clusters` must be a table, [clusters], not an integer" in problems_of('clusters = 1\n[tables]\nroot="x"\n')


def test_a_policy_of_no_kind_is_an_error_that_says_how_kinds_are_written(problems_of: Problems) -> None:
    (problem,) = problems_of(f'{MINIMAL}[[policies]]\nuse = "replication_factor"\n')
    assert problem == "`policies` must be a table, written as [[policies.create]] or another kind, not a list"


@pytest.mark.parametrize(
    "option",
    [
        'sasl_plain_password = "hunter22"',
        'sasl_plain_password = ["hunter22"]',
        'ssl_password = "hunter22"',
        'proxy_url = "socks5://me:hunter22@proxy:1080"',
        'socks5_proxy = "me:hunter22@proxy:1080"',
        'client_id = "https://me:hunter22@host"',
        'sasl_plain_passwort = "hunter22"',
        'request_timeout_ms = "hunter22"',
    ],
)
def test_a_secret_in_the_file_is_refused_and_never_repeated(problems_of: Problems, option: str) -> None:
    (problem,) = problems_of(f"{MINIMAL}[clusters.orders.client]\n{option}\n")
    assert "hunter22" not in problem


def test_a_literal_secret_says_how_to_give_it(problems_of: Problems) -> None:
    (problem,) = problems_of(f'{MINIMAL}[clusters.orders.client]\nsasl_plain_password = "x"\n')
    assert problem == "`clusters.orders.client.sasl_plain_password` holds a secret: give it as env:NAME or file:PATH"


def test_a_password_pasted_into_the_servers_is_not_repeated(problems_of: Problems) -> None:
    (problem,) = problems_of(
        '[tables]\nroot = "x"\n[clusters.a]\nbootstrap_servers = ["sasl://me:hunter22@broker:9092"]\n'
    )
    assert "hunter22" not in problem


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    not_text = tmp_path / "latin1.toml"
    not_text.write_bytes(b"[tables]\nroot = 'caf\xe9'\n")
    broken = tmp_path / "broken.toml"
    broken.write_text("[tables]\nroot = \n")
    for path, reason in [
        (tmp_path / "absent.toml", "no such file"),
        (tmp_path, "is a folder"),
        (not_text, "latin1.toml:2: not UTF-8"),
        (broken, "line 2"),
    ]:
        with pytest.raises(SettingsError, match=reason) as caught:
            load_settings(path)
        assert str(path) in str(caught.value)
        assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    path = tmp_path / "closed.toml"
    path.write_text(MINIMAL)
    path.chmod(0)
    with pytest.raises(SettingsError, match="Permission denied"):
        load_settings(path)


def test_configs_are_pinned_also_where_runs_alter_none(load: Load) -> None:
    settings = load(f"{MINIMAL}[clusters.orders.changes]\npin = true\n")
    assert settings.pinned == ("orders",)


def test_an_unknown_cluster_names_the_nearest_one(load: Load) -> None:
    settings = load(MINIMAL + "[clusters.payments]\nbootstrap_servers = ['b:1']\n")
    with pytest.raises(UsageError, match="unknown cluster `ordres`; did you mean `orders`"):
        settings.cluster("ordres")
    with pytest.raises(UsageError) as caught:
        settings.select(["orders", "x", "y"])
    assert len(str(caught.value).split("\n")) == 2


def test_selecting_keeps_the_order_asked_for_and_nothing_means_all(load: Load) -> None:
    settings = load(MINIMAL + "[clusters.payments]\nbootstrap_servers = ['b:1']\n")
    assert [each.name for each in settings.select(["payments", "orders", "payments"])] == ["payments", "orders"]
    assert [each.name for each in settings.select()] == ["orders", "payments"]


@pytest.mark.parametrize(
    "change",
    [
        ("data/ledger", "data/other"),
        ("clusters.orders", "clusters.other"),
        ("max_deletes = 1", "max_deletes = 2"),
        ("bootstrap_servers", 'cluster_id = "abc"\nbootstrap_servers'),
        ('mode = "refuse"', 'mode = "warn"'),
        ('mode = "refuse"', 'mode = "refuse"\nneeds = "full"'),
        ("most = 1", "most = 2"),
        ("1979-05-27", "1979-05-28"),
        # Reverts change topics although [changes] is off.
        ("max_deletes = 1", "max_deletes = 1\nmax_changes = 0"),
        ("max_deletes = 1", "max_deletes = 1\nmax_losses = 1"),
        ("max_deletes = 1", "max_deletes = 1\nmax_disruptions = 1"),
        ('mode = "refuse"', 'mode = "refuse"\nscope = "all"'),
        ("[[policies.create]]", '[[policies.change]]\nuse = "x"\n[[policies.create]]'),
    ],
)
def test_the_digest_changes_with_what_bears_on_decisions(load: Load, change: tuple[str, str]) -> None:
    assert change[0] in FULL
    assert load(FULL).digest() != load(FULL.replace(*change)).digest()


@pytest.mark.parametrize("change", [("localhost:9092", "localhost:9093"), ("env:A", "env:B")])
def test_the_digest_stays_when_an_address_or_a_password_is_corrected(load: Load, change: tuple[str, str]) -> None:
    assert load(FULL).digest() == load(FULL.replace(*change)).digest()


@pytest.mark.parametrize(
    ("root", "kind", "expected"),
    [
        ("lake.kafka", "auto", "lake.kafka"),
        ("lake.kafka", "path", "./lake.kafka"),
        ("`prod-eu`.kafka", "auto", "`prod-eu`.kafka"),
        ("prod-eu.kafka", "path", "prod-eu.kafka"),
        ("./prod-eu.kafka", "auto", "./prod-eu.kafka"),
        ("s3a://bucket/prod-eu.kafka", "auto", "s3a://bucket/prod-eu.kafka"),
        ("prod-eu.kafka", "catalog", "`prod-eu`.`kafka`"),
        ("`a.b`.my kafka", "catalog", "`a.b`.`my kafka`"),
        ("kafka", "catalog", "`kafka`"),
        ("data/ledger", "path", "data/ledger"),
    ],
)
def test_root_is_a_path_or_a_schema_of_a_catalog(load: Load, root: str, kind: str, expected: str) -> None:
    text = MINIMAL.replace('root = "data/ledger"', f'root = "{root}"\nroot_is = "{kind}"')
    found = load(text).tables.root
    assert found == expected
    assert is_in_catalog(found) == (kind == "catalog" or (kind == "auto" and "/" not in root))


@pytest.mark.parametrize("root", ["s3a://bucket/x", "a/b", "a..b", "a.b.c", "`a"])
def test_root_that_can_not_be_a_schema_is_a_problem(problems_of: Problems, root: str) -> None:
    text = MINIMAL.replace('root = "data/ledger"', f'root = "{root}"\nroot_is = "catalog"')
    assert problems_of(text) == [
        "`tables.root` is not `catalog.schema`, as `root_is` says: put names with other characters into backticks"
    ]


@pytest.mark.parametrize("root", ["prod-eu.kafka", "lake.my kafka", "a.b.c"])
def test_names_that_can_be_a_folder_or_a_schema_need_a_decision(problems_of: Problems, root: str) -> None:
    assert problems_of(MINIMAL.replace('root = "data/ledger"', f'root = "{root}"')) == [
        '`tables.root` can be a folder or the schema of a catalog: set `tables.root_is` to "path" or "catalog", or put '
        "names of a catalog into backticks"
    ]


def test_a_remote_spark_is_an_address_without_a_token(load: Load, problems_of: Problems) -> None:
    assert load(MINIMAL).spark.remote is None
    given = MINIMAL + '[spark]\nremote = "sc://spark.example.com:15002/;use_ssl=true"\n'
    assert load(given).spark.remote == "sc://spark.example.com:15002/;use_ssl=true"
    assert load(given).digest() == load(MINIMAL).digest()
    assert problems_of(given.replace("sc:", "spark:")) == [
        "`spark.remote` is not the address of a Spark Connect server, such as sc://host:15002"
    ]
    (told,) = problems_of(given.replace("use_ssl=true", "token=s3cr3t"))
    assert "holds a token" in told
    assert "s3cr3t" not in told


def test_that_there_is_a_single_writer_bears_on_no_decision(load: Load, problems_of: Problems) -> None:
    alone = MINIMAL.replace("[clusters", "single_writer = true\n[clusters")
    assert (load(MINIMAL).tables.single_writer, load(alone).tables.single_writer) == (False, True)
    assert load(MINIMAL).digest() == load(alone).digest()
    assert load(MINIMAL).audit_digest() == load(alone).audit_digest()
    assert problems_of(alone.replace("true", "'yes'")) == ["`tables.single_writer` must be true or false, not a string"]


def test_the_digest_stays_with_timeouts_comments_and_the_order_of_tables(load: Load) -> None:
    digest = load(FULL).digest()
    assert load("# comment\n" + FULL).digest() == digest
    assert load(FULL.replace("operation_timeout = 1", "operation_timeout = 2")).digest() == digest
    assert load(FULL.replace("request_timeout_ms = 1", "request_timeout_ms = 2")).digest() == digest
    assert load(FULL.replace("max_deletes = 1", "max_deletes = 1\nmax_removed_rows = 9")).digest() == digest
    assert load(FULL + "\n[acls]").digest() == digest
    assert load(FULL + "\n[acls]\nmanage = ['^User:a$']").digest() != digest
    tables, rest = FULL.split("[clusters", maxsplit=1)
    assert load(f"[clusters{rest}{tables}").digest() == digest


FULL = (
    MINIMAL
    + """
[clusters.orders.client]
sasl_plain_password = "env:A"
request_timeout_ms = 1
[guards]
max_deletes = 1
[kafka]
operation_timeout = 1
[[policies.create]]
use = "x"
mode = "refuse"
most = 1
since = 1979-05-27
"""
)


def test_a_cluster_travels_as_json_with_references_unresolved(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "hunter22")
    orders = load(FULL.replace("request_timeout_ms = 1", "api_version = [2, 3]")).cluster("orders")
    assert ClusterSettings.from_json(orders.to_json()) == orders
    assert "env:A" in orders.to_json()
    assert "hunter22" not in orders.to_json()


def test_references_are_resolved_at_the_moment_of_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "key-password"
    cluster = client(sasl_plain_password="env:ORDERS_PASSWORD", ssl_password=f"file:{secret}", request_timeout_ms=5)
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter22")
    secret.write_bytes(b"two\r\n\r\n")
    options = resolve_client_options(cluster)
    assert options == {"sasl_plain_password": "hunter22", "ssl_password": "two\r\n", "request_timeout_ms": 5}
    assert "hunter22" not in repr(options)
    assert f"{options['sasl_plain_password']}" == "hunter22"


def test_a_reference_that_leads_nowhere_names_cluster_key_and_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORDERS_PASSWORD", raising=False)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("LATIN", "hunter22\udce4")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"hunter22\xff")
    for reference, reason in [
        ("env:ORDERS_PASSWORD", "environment variable ORDERS_PASSWORD is not set"),
        ("env:EMPTY", "environment variable EMPTY is empty"),
        ("env:LATIN", "environment variable LATIN is not UTF-8 text"),
        (f"file:{tmp_path}/absent", f"can't read file {tmp_path}/absent: No such file or directory"),
        (f"file:{tmp_path}", "Is a directory"),
        (f"file:{tmp_path}/empty", "is empty"),
        (f"file:{tmp_path}/binary", "is not UTF-8 text"),
    ]:
        with pytest.raises(SecretError) as caught:
            resolve_client_options(client(sasl_plain_password=reference))
        assert str(caught.value).startswith("clusters.orders.client.sasl_plain_password: ")
        assert reason in str(caught.value)
        assert "hunter22" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_token_provider_is_made_by_its_factory() -> None:
    options = resolve_client_options(client(sasl_oauth_token_provider=f"{__name__}:AnyProvider"))
    assert isinstance(options["sasl_oauth_token_provider"], AnyProvider)


def raised(error: Exception, module: str) -> Exception:
    """An error that code of a module raised."""
    space = {"__name__": module, "error": error}
    with pytest.raises(type(error)):
        exec("def fail():\n    raise error\nfail()", space)
    # Less this test's own frame: a client's errors have none below the one that catches them.
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("s3cr3t"), OSError("s3cr3t"), URLError("s3cr3t"), KafkaTimeoutError("s3cr3t"), ValueError()],
    ids=repr,
)
def test_errors_of_foreign_code_show_only_type_and_module(error: Exception) -> None:
    told = words_of(raised(error, "ourcompany.tokens"))
    assert (
        told
        == f"{type(error).__name__} raised by ourcompany.tokens, whose text is not shown since it may hold a secret"
    )


def test_an_error_of_a_foreign_type_is_foreign_whoever_raised_it() -> None:
    error = type("Denied", (Exception,), {"__module__": "botocore.exceptions"})("s3cr3t")
    assert words_of(raised(error, "kafka.net.sasl.msk")).startswith("Denied raised by botocore.exceptions, whose text")


@pytest.mark.parametrize("module", ["kafka.net.connection", "ssl", "topicledger.kafka.connection"])
def test_the_words_of_known_code_are_told(module: str) -> None:
    assert words_of(raised(KafkaTimeoutError("too late"), module)) == "KafkaTimeoutError: too late"
    assert words_of(raised(OSError(111, "refused"), module)) == "[Errno 111] refused"
    assert words_of(raised(KeyError("x"), module)) == "KeyError: 'x'"
    assert words_of(KafkaTimeoutError()) == "KafkaTimeoutError"


def test_the_start_of_a_run_finds_a_provider_without_calling_it() -> None:
    check_references(client(sasl_oauth_token_provider=f"{__name__}:failing_provider"))
    with pytest.raises(SecretError, match="can't find `no_such_module:x` here"):
        check_references(client(sasl_oauth_token_provider="no_such_module:x"))
    with pytest.raises(SecretError, match="NO_SUCH_VARIABLE is not set"):
        check_references(client(sasl_plain_password="env:NO_SUCH_VARIABLE"))


def test_a_token_provider_that_cannot_be_made_says_so_without_its_words() -> None:
    with pytest.raises(SecretError, match="can't find `no_such_module:x`"):
        resolve_client_options(client(sasl_oauth_token_provider="no_such_module:x"))
    with pytest.raises(SecretError, match="raised RuntimeError") as caught:
        resolve_client_options(client(sasl_oauth_token_provider=f"{__name__}:failing_provider"))
    assert "hunter22" not in str(caught.value)


def test_secret_values_are_passwords_and_urls_that_hold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter22")
    monkeypatch.setenv("PROXY", "socks5://me:p%40ss@proxy:1080")
    monkeypatch.setenv("NAME", "topicledger")
    cluster = client(
        sasl_plain_password="env:PASSWORD",
        proxy_url="env:PROXY",
        sasl_plain_username="env:NAME",
        ssl_password="env:NOT_SET_ANYWHERE",
    )
    assert secret_values(cluster) == {"hunter22", "socks5://me:p%40ss@proxy:1080", "p%40ss", "p@ss"}


def test_redacting_removes_secrets_however_they_were_written() -> None:
    assert redact("login hunter22 failed, hunter22!", ["hunter22", ""]) == "login *** failed, ***!"
    assert redact(f"got {'it' + chr(10) + 's'!r}", ["it\ns"]) == "got '***'"
    assert redact("http://me:p%40ssw%3Ard@x", ["p@ssw:rd"]) == "http://me:***@x"
    assert redact("hunter22x hunter22", ["hunter22", "hunter22x"]) == "*** ***"
    assert redact("nothing to hide", []) == "nothing to hide"


def test_a_short_secret_is_redacted_only_where_it_stands_alone() -> None:
    assert redact("password ab was refused by abacus", ["ab"]) == "password *** was refused by abacus"


def test_hints_name_the_nearest_or_the_known() -> None:
    assert nearest("MAX_DELETE", ["max_deletes", "root"]) == "did you mean `max_deletes`?"
    assert nearest("zzz", ["b", "a"]) == "known: `a`, `b`"
    assert nearest("zzz", []) == ""
    assert nearest("zzz", [f"n{i:02}" for i in range(25)]).endswith("`n19` and 5 more")
    assert show("a\x1b[31m\nb") == "a\\x1b[31m\\nb"


def test_periods_and_prices_of_views_are_numbers(load: Load, problems_of: Problems) -> None:
    views = load(
        MINIMAL + '[views]\nunused_days = 7\ngigabyte_price = 0.1\npartition_price = 2\ncurrency = "EUR"\n'
    ).views
    assert (views.unused_days, views.gigabyte_price, views.partition_price, views.currency) == (7, 0.1, 2.0, "EUR")
    assert problems_of(MINIMAL + '[views]\nunused_days = 0\ngigabyte_price = -1\npartition_price = "2"\n') == [
        "`views.unused_days` must be between 1 and 3650",
        "`views.gigabyte_price` must be between 0 and 1000000000000",
        "`views.partition_price` must be a number, not a string",
    ]


def test_statements_for_new_tables_name_the_table_and_bear_on_no_decision(load: Load, problems_of: Problems) -> None:
    given = MINIMAL.replace("[clusters", 'on_create = ["GRANT SELECT ON {table} TO `auditors`"]\n[clusters')
    assert load(given).tables.on_create == ("GRANT SELECT ON {table} TO `auditors`",)
    assert load(MINIMAL).digest() == load(given).digest()
    wrong = "`tables.on_create` must have `{table}`, the name of the table, in each statement"
    assert problems_of(given.replace("{table}", "runs")) == [wrong]
