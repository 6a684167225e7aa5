"""A person who types their own name differently is no second approver, and stays the requester."""

from __future__ import annotations

import sys
import unicodedata
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicledger.config.guards import GuardSettings
from topicledger.errors import UsageError
from topicledger.plan import approvals
from topicledger.plan.people import person_key

SAME = [
    ("José", "Jose\u0301"),
    ("Ann Lee", " ann \t lee "),
    ("Ann Lee", "Ann\u00a0Lee"),
    ("Ann Lee", "Ann\u2003Lee"),
    ("ann", "ann\u200b"),
    ("ann", "a\u00adnn\x00"),
    ("José", "Jose\u200d\u0301"),
    ("ann", "ａｎｎ"),
    ("ann", "ann\ufe0f"),
    ("ann", "ann\u3164"),
    ("straße", "STRASSE"),
    ("\u03b1\u0345", "\u1fb3"),
]


@pytest.mark.parametrize(("name", "again"), SAME)
def test_a_name_typed_differently_is_the_same_person(name: str, again: str) -> None:
    assert person_key(name) == person_key(again)


@pytest.mark.parametrize(("name", "again"), SAME)
def test_a_requester_who_types_their_name_differently_cannot_approve(
    name: str, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"run_id": "r", "arguments": {}, "state": "planned", "started_at": datetime.now(UTC), "requested_by": name}
    monkeypatch.setattr(approvals, "require_run", lambda *_: row)
    ledger: Any = SimpleNamespace(ensure=lambda *_: None)
    settings: Any = SimpleNamespace(guards=GuardSettings(approvals=1))
    with pytest.raises(UsageError, match="requested run r: another person must approve it"):
        approvals.approve(ledger, settings, "r", by=again)
    with pytest.raises(UsageError, match="--by is empty"):
        approvals.approve(ledger, settings, "r", by=" \u200b\u2060\u3164")


def test_different_people_stay_different() -> None:
    names = ["ann", "anna", "ann lee", "annlee", "josé", "jose", "ann-lee", "ann.lee", "ann2", "ånn", ""]
    assert len(set(map(person_key, names))) == len(names)


@given(st.text(st.sampled_from("aeſß\u00e9\u0301\u0345\u0327\u1fb3\u0130\u2126ｅ\u200d \u00a0") | st.characters()))
def test_other_encodings_and_cases_of_a_name_are_the_same_person(name: str) -> None:
    key = person_key(name)
    assert person_key(key) == key
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert person_key(unicodedata.normalize(form, name)) == key  # type: ignore[arg-type]


def test_a_single_character_added_to_a_name_counts_only_if_it_is_seen() -> None:
    unseen = [chr(each) for each in range(sys.maxunicode + 1) if unicodedata.category(chr(each)) in ("Cf", "Zs", "Zl")]
    assert {person_key(f"ann{each}") for each in unseen} == {"ann"}
