"""Helper that loads files into a ledger."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.frames import dicts
from topicledger.config.guards import GuardSettings
from topicledger.config.settings import ClusterSettings, Settings, TablesSettings
from topicledger.files.load import Loaded, load
from topicledger.files.read import read
from topicledger.ledger.tables import Ledger
from topicledger.schemas import RUNS


def settings_for(ledger: Ledger) -> Settings:
    return Settings(
        path=Path("tests.toml"),
        tables=TablesSettings(root=ledger.root),
        clusters={name: ClusterSettings(name=name, bootstrap_servers=("h:1",)) for name in ("orders", "billing")},
    )


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load_files(ledger: Ledger, *paths: Path, may_remove: int = 0, **options: Any) -> Loaded:
    """Load files, and return the result without its run id, which differs each time."""
    settings = replace(settings_for(ledger), guards=GuardSettings(max_removed_rows=may_remove))
    form = {name: options.pop(name) for name in ("stdin_format", "clusters") if name in options}
    parsed = read(settings, paths, io.StringIO(""), foreign=options.get("foreign"), **form)
    loaded = load(ledger, settings, parsed, **options)
    assert loaded.run_id is not None
    return replace(loaded, run_id=None)


def run_rows(ledger: Ledger) -> list[dict[str, Any]]:
    return dicts(ledger.read(RUNS).orderBy("started_at"))
