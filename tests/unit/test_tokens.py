"""Tokens by client credentials from a real token endpoint, and the table of the settings about it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests import certificates, tokens
from tests.tokens import TokenEndpoint
from topicledger.config.http import opener
from topicledger.config.oauth import OAuthSettings
from topicledger.config.reading import read_settings
from topicledger.config.secrets import check_references, resolve_client_options, secret_values
from topicledger.config.settings import ClusterSettings
from topicledger.errors import SecretError
from topicledger.kafka import tokens as product
from topicledger.kafka.tokens import ClientCredentials, TokenError

MINIMAL = """
[tables]
root = "ledger"
[clusters.events]
bootstrap_servers = ["localhost:9092"]
[clusters.events.oauth]
"""
FULL = """
token_endpoint = "https://login.example.com/token"
client_id = "topicledger"
client_secret = "env:EVENTS_SECRET"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def endpoint(made: certificates.Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenEndpoint]:
    monkeypatch.setattr(product, "_PAUSE_SECONDS", 0.01)
    with tokens.token_endpoint(made.token_key, made.server) as running:
        yield running


def provider(
    endpoint: TokenEndpoint, made: certificates.Certificates, secret: str = tokens.CLIENT_SECRET, **other: str
) -> ClientCredentials:
    oauth = OAuthSettings(
        token_endpoint=endpoint.address,
        client_id=tokens.CLIENT_ID,
        client_secret="env:UNUSED",
        ca_file=str(made.authority),
        extensions={"logicalCluster": "lkc-1"},
    )
    return ClientCredentials("events", replace(oauth, **other), tokens.CLIENT_ID, secret)


def test_a_token_is_kept_until_most_of_its_life_is_over(
    endpoint: TokenEndpoint, made: certificates.Certificates
) -> None:
    kept = provider(endpoint, made)
    assert kept.token() == kept.token()
    assert kept.extensions() == {"logicalCluster": "lkc-1"}
    assert endpoint.forms == ["grant_type=client_credentials"]
    kept.forget()
    kept.token()
    assert len(endpoint.forms) == 2
    endpoint.seconds = 0
    short = provider(endpoint, made)
    short.token()
    short.token()
    assert len(endpoint.forms) == 4


def test_a_busy_endpoint_is_asked_again(endpoint: TokenEndpoint, made: certificates.Certificates) -> None:
    endpoint.replies = [(503, {}), (429, {})]
    assert provider(endpoint, made).token()
    endpoint.replies = [(503, {})] * 3
    with pytest.raises(TokenError, match=r"answered with status 503: check clusters\.events\.oauth\.token_endpoint"):
        provider(endpoint, made).token()
    assert endpoint.replies == []


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ((400, {"error": "invalid_scope", "error_description": "s3cr3t"}), r"status 400 \(invalid_scope\): check"),
        ((401, {"error": "s3cr3t of/the+client"}), "status 401: check client_id, client_secret and scope"),
        ((403, "https://elsewhere.example.com"), "status 403: check"),
        ((302, "https://127.0.0.1:1/elsewhere"), "status 302: check"),
        ((200, {"token": "s3cr3t"}), "has no access_token"),
        ((200, {"access_token": "s3cr3t\x01auth=x"}), "has no access_token"),
        ((200, ["s3cr3t"]), "has no access_token"),
        ((200, {"access_token": "s3cr3t", "expires_in": 10**400}), "has no access_token"),
    ],
    ids=str,
)
def test_an_answer_without_a_token_is_an_error_without_secrets(
    endpoint: TokenEndpoint, made: certificates.Certificates, reply: tuple[int, object], reason: str
) -> None:
    endpoint.replies = [reply]
    with pytest.raises(TokenError, match=reason) as error:
        provider(endpoint, made).token()
    assert str(error.value).startswith(f"clusters.events.oauth: no token from {endpoint.address}: ")
    assert "s3cr3t" not in f"{error.value!r}"
    assert len(endpoint.forms) == 1


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server that gives each request these bytes; yields its address, and the beginning of each request."""
    asked: list[bytes] = []

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline())
            length = 0
            while line := self.rfile.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            self.rfile.read(length)
            self.wfile.write(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/token", asked
        finally:
            server.shutdown()


OK, CHUNKED, ELSEWHERE = b"HTTP/1.1 200 OK\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1 302 Found\r\nLocation: "


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"s3cr3t\r\n\r\n", r"not HTTP, or was cut off \(BadStatusLine\)"),
        (OK + CHUNKED + b"\r\nff\r\ns3cr3t", r"not HTTP, or was cut off \(IncompleteRead\)"),
        (OK + b"".join(b"X-%d: s3cr3t\r\n" % n for n in range(101)) + b"\r\n", r"cut off \(HTTPException\)"),
        (OK + b"X: " + b"s3cr3t" * 20_000 + b"\r\n\r\n", r"cut off \(LineTooLong\)"),
        (ELSEWHERE + b"https://[s3cr3t\r\n\r\n", r"cut off \(ValueError\)"),
        (b"HTTP/1.1 503 Busy\r\n" + CHUNKED + b"\r\nff\r\ns3cr3t", "it answered with status 503:"),
        (OK + b"\r\n" + b"[" * 100_000, "has no access_token"),
        (b"HTTP/1.1 400 Bad\r\n\r\n" + b"[" * 100_000, "it answered with status 400:"),
    ],
    ids=lambda each: str(each[:60]),
)
def test_an_answer_that_is_not_http_is_an_error_of_this_cluster(
    made: certificates.Certificates, monkeypatch: pytest.MonkeyPatch, answer: bytes, reason: str
) -> None:
    monkeypatch.setattr(product, "_PAUSE_SECONDS", 0.01)
    with answering(answer) as (address, asked):
        there = provider(TokenEndpoint(made.token_key, address), made)
        with pytest.raises(TokenError, match=reason) as error:
            there.token()
    assert "s3cr3t" not in f"{error.value!r}"
    assert len(asked) == (1 if "access_token" in reason or "400" in reason else 3)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_no_proxy_gets_what_is_for_this_machine(
    made: certificates.Certificates, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The address is http: there, so a proxy would get the secret in clear text. Other hosts keep their proxy."""
    monkeypatch.setattr(product, "_PAUSE_SECONDS", 0.01)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with answering(OK + b"\r\n" + b'{"access_token": "t"}') as (proxy, asked):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(TokenError, match=r"check .*token_endpoint, and that it is up"):
            provider(TokenEndpoint(made.token_key, f"http://{host}:9/token"), made).token()
        assert asked == []
        opener().open("http://elsewhere.example.com/", timeout=30).close()
        assert asked == [b"GET http://elsewhere.example.com/ HTTP/1.1\r\n"]


def test_secrets_are_in_no_error_repr_or_log(
    endpoint: TokenEndpoint, made: certificates.Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        wrong = provider(endpoint, made, secret="wrong-s3cr3t")
        with pytest.raises(TokenError, match=r"status 401 \(invalid_client\)") as error:
            wrong.token()
        token = provider(endpoint, made).token()
    said = f"{error.value!r} {error.value.__cause__!r} {wrong!r} {vars(error.value)} {caplog.text}"
    assert "s3cr3t" not in said
    assert token not in said


def test_an_unreachable_or_untrusted_endpoint_is_named(
    endpoint: TokenEndpoint, made: certificates.Certificates
) -> None:
    with pytest.raises(TokenError, match="certificate verify failed"):
        provider(endpoint, made, ca_file=str(made.stranger)).token()
    with pytest.raises(TokenError, match=r"refused: check clusters\.events\.oauth\.token_endpoint, and that it is up"):
        provider(endpoint, made, token_endpoint="https://127.0.0.1:9/token").token()
    with pytest.raises(TokenError, match=r"oauth\.ca_file /absent\.pem can't be read: No such file"):
        provider(endpoint, made, ca_file="/absent.pem").token()
    assert endpoint.forms == []


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "settings.toml"
    path.write_text(MINIMAL + text)
    return [*read_settings(path)[1]]


def test_a_complete_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(MINIMAL + FULL + 'scope = "kafka"\nextensions = {logicalCluster = "lkc-1"}\n')
    settings, found = read_settings(path)
    assert found == []
    cluster = settings.clusters["events"]
    assert cluster.oauth is not None
    assert (cluster.oauth.scope, cluster.oauth.extensions) == ("kafka", {"logicalCluster": "lkc-1"})
    assert ClusterSettings.from_json(cluster.to_json()) == cluster
    with pytest.raises(SecretError, match=r"clusters\.events\.oauth\.client_secret: .*EVENTS_SECRET is not set"):
        check_references(cluster)
    assert secret_values(cluster) == frozenset()
    monkeypatch.setenv("EVENTS_SECRET", "s3cr3t")
    check_references(cluster)
    assert secret_values(cluster) == {"s3cr3t"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("scope = 'x'", "`clusters.events.oauth.token_endpoint` is missing"),
        ("scope = 'x'", "`clusters.events.oauth.client_id` is missing"),
        ("scope = 'x'", "`clusters.events.oauth.client_secret` is missing: give it as env:NAME or file:PATH"),
        ("client_secret = 's3cr3t'", "`clusters.events.oauth.client_secret` holds a secret"),
        ("client_id = 'env:'", "`clusters.events.oauth.client_id` is only `env:`"),
        ("token_endpoint = 'http://login.example.com/s3cr3t'", "must be an https: address"),
        ("token_endpoint = 'https://me:s3cr3t@login.example.com'", "holds a user or a password"),
        ("token_endpoint = 'login.example.com'", "is not an https: address"),
        ("token_endpoint = 'https://[s3cr3t'", "is not an https: address"),
        ("token_endpoint = 'https://localhost:s3cr3t/t'", "check its host, and its port, a number from 1 to 65535"),
        ("token_endpoint = 'https://localhost:0/t'", "check its host, and its port, a number from 1 to 65535"),
        ("token_endpoint = 'https://a..b/t'", "check its host, and its port"),
        (f"token_endpoint = 'https://{'a' * 64}/t'", "check its host, and its port"),
        ("token_endpoint = 'https://a%2e%2eb/t'", "check its host, and its port"),
        ("token_endpoint = 'https://login.example.com/s3cr3t t'", "has a blank, or a character outside ASCII"),
        ("token_endpoint = 'https://login.example.com/tökén'", "has a blank, or a character outside ASCII"),
        ("token_endpoint = 'https://lögin.example.com/t'", "has a blank, or a character outside ASCII"),
        ("extensions = {auth = 'x'}", "`clusters.events.oauth.extensions` can't have `auth`"),
        ("tenant = 'x'", "unknown key `clusters.events.oauth.tenant`"),
        (
            f"{FULL}[clusters.events.client]\nsasl_mechanism = 'PLAIN'",
            '`clusters.events.oauth` needs client.sasl_mechanism = "OAUTHBEARER", or no such option',
        ),
        (
            f"{FULL}[clusters.events.client]\nsecurity_protocol = 'SSL'",
            '`clusters.events.oauth` needs client.security_protocol = "SASL_SSL", or no such option',
        ),
        (f"{FULL}[clusters.events.client]\nsasl_oauth_token_provider = 'a:b'", "exclude each other: keep one"),
    ],
)
def test_a_wrong_table_is_named_with_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    found = problems(tmp_path, text)
    assert any(problem in each for each in found), found
    assert not any("s3cr3t" in each for each in found)


def test_http_is_accepted_for_this_machine_only(tmp_path: Path) -> None:
    for here in ("127.0.0.1:8080", "127.0.0.2", "[::1]:8080", "localhost"):
        assert problems(tmp_path, FULL.replace("https://login.example.com", f"http://{here}")) == []
    for elsewhere in ("localhost.example.com", "[2001:db8::1]", "10.0.0.1"):
        assert problems(tmp_path, FULL.replace("https://login.example.com", f"http://{elsewhere}")) != []


def test_the_signer_of_msk_is_asked_for_each_token_without_a_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a stand-in for Amazon's library, which the test environment lacks."""
    regions: list[str] = []

    class Signer:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            regions.append(region)
            return f"s3cr3t-{len(regions)}", 0

    library, session = ModuleType("aws_msk_iam_sasl_signer"), ModuleType("botocore.session")
    monkeypatch.setattr(library, "MSKAuthTokenProvider", Signer, raising=False)
    monkeypatch.setattr(session, "Session", lambda: SimpleNamespace(get_config_variable=lambda _: None), raising=False)
    for name, module in (
        ("aws_msk_iam_sasl_signer", library),
        ("botocore", ModuleType("botocore")),
        ("botocore.session", session),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    settings = ClusterSettings(
        name="orders",
        bootstrap_servers=("localhost:9098",),
        client={"sasl_oauth_token_provider": "topicledger.kafka.msk:token_provider"},
    )
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(SecretError, match=r"client\.sasl_oauth_token_provider: .* set AWS_REGION"):
        resolve_client_options(settings)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with caplog.at_level(logging.DEBUG):
        signing: Any = resolve_client_options(settings)["sasl_oauth_token_provider"]
        assert [signing.token(), signing.token()] == ["s3cr3t-1", "s3cr3t-2"]
    assert regions == ["eu-west-1", "eu-west-1"]
    assert "s3cr3t" not in caplog.text + repr(signing)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(SecretError, match=r"pip install 'topicledger\[msk\]'"):
        resolve_client_options(settings)
