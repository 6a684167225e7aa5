"""A report as one HTML file that needs nothing beside it: its style and script are in it, pinned by their hashes.

Everything from outside goes through Jinja2's autoescape, after invisible characters were made visible.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from topicledger import __version__
from topicledger.model import Phase
from topicledger.report import advice, charts, words
from topicledger.report.facts import LISTED_WAITS, Age, Changed, Drift, Report, Result, Shown, Tally
from topicledger.report.listings import NO_OWNER, Cell, Line, Listing, listing, listings_of_rights, name_of
from topicledger.text import printable, show

_MESSAGE_CHARACTERS = 400
_CLUSTERS = 40
_TEMPLATES = ("page.html", "parts.html")
_NO_CLUSTER = "no cluster"
_COMMAND = re.compile("`([^`]+)`")
_SHOWN_WAIT = 0.01
"""Seconds between requests that a page shows."""


def environment(*templates: str) -> Environment:
    """Templates with the filters that write names, messages, numbers and times."""
    made = Environment(
        loader=DictLoader({name: template(name) for name in templates}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        name=name_of,
        message=_message,
        code=_code,
        sql=printable,
        number=words.number,
        time=words.time,
        duration=words.duration,
        age=words.age,
        counted=words.counted,
        took=words.took,
        exit_code=words.exit_code,
    )
    return made


def render(report: Report) -> str:
    """The whole page. The same report gives the same bytes."""
    style, script = (template(name) for name in ("page.css", "page.js"))
    headline = words.headline(report)
    return (
        environment(*_TEMPLATES)
        .get_template("page.html")
        .render(
            r=report,
            version=__version__,
            headline=headline,
            entry=_entry(report, headline),
            done=words.done(report),
            outcomes=report.outcomes(),
            reasons=words.reasons(report.tallies),
            clusters=_by_cluster(report.tallies),
            policies=_by_policy(report),
            drift_kinds=_by_kind(report),
            topics=_topics(report),
            findings=_findings(report),
            rights=list(listings_of_rights(report.history.rights)),
            periods=charts.columns(report.history.periods, list(Shown), report.history.unit),
            waits=[each for each in report.requests.waiting if each.between_seconds >= _SHOWN_WAIT or each.sent_again],
            ended={name for _, counts in report.history.periods for name in counts},
            bar=charts.bar,
            Shown=list(Shown),
            Age=list(Age),
            Changed=list(Changed),
            LISTED_WAITS=LISTED_WAITS,
            style=Markup(style),
            script=Markup(script),
            style_hash=hash_of(style),
            script_hash=hash_of(script),
        )
    )


def _entry(report: Report, headline: words.Headline) -> str:
    """What an index shows of the page, as JSON; `index.Entry` reads it."""
    run, span = report.run, report.span
    began = run.started_at if run is not None else span[0] if span is not None else None
    about = f"{report.kind} {run.run_id}" if run is not None else f"until {words.time(span[1] if span else None)}"
    return json.dumps(
        {
            "headline": headline.text,
            "tone": headline.tone,
            "began": words.time(began),
            "about": name_of(about),
            "by": name_of(run.requested_by) if run is not None else "",
            "clusters": name_of(", ".join(report.clusters) or (run.clusters if run is not None else "")),
        }
    )


def template(name: str) -> str:
    """A file of the folder templates."""
    return (files("topicledger.report") / "templates" / name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """As a Content-Security-Policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _message(text: object) -> str:
    return "" if text is None else show(str(text), _MESSAGE_CHARACTERS)


def _code(text: str) -> Markup:
    """A text with `commands` in it, these as code."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))


def _by_cluster(tallies: Sequence[Tally]) -> list[dict[str, Any]]:
    """Clusters with their phases, and how the topics that ended there stand; beyond the 40 largest, as one."""
    sizes: dict[str, int] = {}
    for each in tallies:
        sizes[each.cluster or _NO_CLUSTER] = sizes.get(each.cluster or _NO_CLUSTER, 0) + each.topics
    largest = sorted(sizes, key=lambda cluster: (-sizes[cluster], cluster))[:_CLUSTERS]
    rest = f"{words.number(len(sizes) - len(largest))} other clusters"
    found: dict[str, dict[str, dict[str, int]]] = {name: {} for name in sorted(largest)}
    for each in tallies:
        name = each.cluster or _NO_CLUSTER
        phases = found.setdefault(name if name in largest else rest, {})
        counts = phases.setdefault(each.phase or "none yet", {})
        counts[each.outcome] = counts.get(each.outcome, 0) + each.topics
    order = ["none yet", *(each.value for each in Phase)]
    return [
        {
            "name": name,
            "phases": sorted(phases.items(), key=lambda item: order.index(item[0]) if item[0] in order else -1),
            "counts": _added(phases.values()),
        }
        for name, phases in found.items()
    ]


def _added(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for counts in several:
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return total


def _by_policy(report: Report) -> list[dict[str, Any]]:
    """Policies over all clusters, the one that most topics break first; refusing and warning ones apart."""
    alike: dict[tuple[str, str], list[Any]] = {}
    for each in report.policies:
        alike.setdefault((each.policy, each.mode), []).append(each)
    found = [
        {
            "policy": policy,
            "mode": mode,
            "topics": sum(each.topics for each in group),
            "clusters": [each.cluster or _NO_CLUSTER for each in group],
            "example": group[0].example,
            "message": group[0].message,
        }
        for (policy, mode), group in alike.items()
    ]
    return sorted(found, key=lambda row: (row["mode"], -row["topics"], row["policy"]))


def _by_kind(report: Report) -> list[dict[str, Any]]:
    """Kinds of drift with how old their findings are: errors first, then warnings, then the rest."""
    if report.drift is None:
        return []
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for each in report.drift.tallies:
        severity = each.severity or ""
        row = kinds.setdefault(
            (each.kind, severity), {"kind": each.kind, "severity": severity, "ages": {}, "clusters": {}}
        )
        row["ages"][each.age] = row["ages"].get(each.age, 0) + each.findings
        name = each.cluster or _NO_CLUSTER
        row["clusters"][name] = row["clusters"].get(name, 0) + each.findings
    for row in kinds.values():
        row["findings"] = sum(row["ages"].values())
        row["advice"] = advice.of_drift(row["kind"], report.drift.rows)
        row["clusters"] = sorted(row["clusters"], key=lambda name: (-row["clusters"][name], name))
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(kinds.values(), key=lambda row: (order.get(row["severity"], 3), -row["findings"], row["kind"]))


def _topics(report: Report) -> Listing:
    several = report.run is None
    lines = [_topic(row, several=several) for row in report.rows]
    return listing(
        "topics",
        "Every topic",
        ["Outcome", "Topic", "What, and why not", "Owner", "Ended (UTC)"],
        ["outcome", "cluster", "error", "owner"],
        lines,
        sum(each.topics for each in report.tallies),
        report.query,
    )


def _topic(row: Result, *, several: bool) -> Line:
    cluster = name_of(row.cluster) or _NO_CLUSTER
    ended = " ".join(filter(None, (row.action, row.phase and f"in {row.phase}")))
    what = words.with_durations(_message(row.what))
    error = name_of(row.error)
    details = (what, _message(row.error_message)) if error else (_message(row.error_message),)
    return Line(
        cells=[
            Cell(text=row.outcome, under=ended, outcome=row.outcome),
            Cell(text=name_of(row.topic) or "(no name)", under=cluster, wide=True),
            Cell(text=error or what, under="; ".join(filter(None, details)), wide=True),
            Cell(text=name_of(row.owner) or "–"),
            Cell(text=words.time(row.completed_at), under=name_of(row.run_id) if several else ""),
        ],
        filters=[row.outcome, cluster, error or "none", name_of(row.owner) or NO_OWNER],
    )


def _findings(report: Report) -> Listing | None:
    drift = report.drift
    if drift is None:
        return None
    lines = [_finding(row, report) for row in drift.rows]
    return listing(
        "findings",
        "Every finding",
        ["Severity", "Topic", "Kind", "Declared, live", "Owner", "Since (UTC)"],
        ["severity", "cluster", "kind", "owner"],
        lines,
        sum(each.findings for each in drift.tallies),
        drift.query,
    )


def _finding(row: Drift, report: Report) -> Line:
    cluster = name_of(row.cluster) or _NO_CLUSTER
    severity = row.severity or "none"
    sides = {"declared": row.declared, "live": row.live}
    pair = [
        f"{side} {words.config_value(row.what, name_of(value))}" for side, value in sides.items() if value is not None
    ]
    return Line(
        cells=[
            Cell(text=severity, outcome=severity),
            # Of a right that names no topic: the right.
            Cell(text=name_of(row.topic) or name_of(row.what) or "(no name)", under=cluster, wide=True),
            Cell(text=row.kind, under=name_of(row.what)),
            Cell(text=", ".join(pair), under=_message(row.message), wide=True),
            Cell(text=name_of(row.owner) or "–"),
            Cell(text=words.time(row.since), under=words.age(row.since, report.made_at)),
        ],
        filters=[severity, cluster, row.kind, name_of(row.owner) or NO_OWNER],
    )
