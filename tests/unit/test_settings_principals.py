"""The run's own rights and those of super users are kept only if the settings name principals as brokers do."""

from __future__ import annotations

from pathlib import Path

import pytest

from topicledger.config.reading import load_settings
from topicledger.config.settings import Settings
from topicledger.errors import SettingsError
from topicledger.resources.acls.names import AclSettings

WRONG = {
    "CN=run": "isn't TYPE:NAME, as brokers write principals, such as User:admin",
    "admin": "isn't TYPE:NAME",
    "CN=run:a": "isn't TYPE:NAME",
    "User:": "isn't TYPE:NAME",
    ":admin": "isn't TYPE:NAME",
    " User:admin": "has blanks around it",
    "^User:admin": "isn't TYPE:NAME",
    "User:admin ": "has blanks around it",
    "User: admin": "has blanks around its name",
    "User:a;User:b": "has several principals: write one per entry",
    "User:CN=a,OU=b; User:CN=c": "has several principals",
    "User:a,User:b": "has several principals",
    "user:admin": "would match nothing: brokers write User:",
    "User:User:admin": "has two types",
    "User:admin-*": "isn't a pattern",
    "env:ADMIN": "can't be an env: or file: reference",
    "file:/run/admin": "can't be an env: or file: reference",
}
RIGHT = ("User:admin", "User:CN=run,OU=a b,O=c;d", "User:*", "Group:ops", "User:spiffe://a/b", "User:örs")


def load(folder: Path, cluster: str = "", more: str = "") -> Settings:
    path = folder / "my.toml"
    path.write_text(
        f"[tables]\nroot = 'ledger'\n[clusters.main]\nbootstrap_servers = ['localhost:9092']\n{cluster}\n{more}\n",
        encoding="utf-8",
    )
    return load_settings(path)


@pytest.mark.parametrize(("text", "why"), WRONG.items())
def test_a_principal_that_would_protect_nothing_is_refused(text: str, why: str, tmp_path: Path) -> None:
    """No ACL has such a principal, so a run would remove its own rights, and those of super users."""
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, f'principal = "{text}"', f'[acls]\nsuper_users = ["User:good", "{text}"]')
    lines = str(caught.value).split("\n")
    assert [line.startswith(f"{tmp_path / 'my.toml'}: ") for line in lines] == [True, True]
    assert "`clusters.main.principal` " in lines[0]
    assert "`acls.super_users` " in lines[1]
    assert all(why in line and "good" not in line for line in lines)


@pytest.mark.parametrize("text", RIGHT)
def test_principals_are_read_as_brokers_write_them(text: str, tmp_path: Path) -> None:
    found = load(tmp_path, f'principal = "{text}"', f'[acls]\nsuper_users = ["{text}"]')
    assert found.clusters["main"].principal == text
    assert found.of_kinds.of(AclSettings).super_users == (text,)


def test_every_principal_in_a_list_that_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, more='[acls]\nsuper_users = ["admin", "User:good", "root"]')
    assert [line.split('"')[1] for line in str(caught.value).split("\n")] == ["admin", "root"]
