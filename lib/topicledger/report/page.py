"""A report as one self-contained HTML file: its style and script are inline, pinned by their hashes.

All text from outside goes through Jinja2's autoescape, after invisible characters were made visible.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape

from topicledger import __version__
from topicledger.ledger.sql import as_command
from topicledger.model import Phase
from topicledger.plan.lines import sign_of
from topicledger.report import advice, charts, listings, times, words
from topicledger.report.facts import LISTED_WAITS, PROBLEMS, Age, Changed, Report, ShownState, Tally
from topicledger.report.listings import NO_CLUSTER, NO_OWNER
from topicledger.text import counted, duration, printable

_CLUSTERS = 40
_GROUPS = 40
"""Most owners on clusters in the diff, beside those where something is destroyed."""
_LINES = 5
"""Lines of a group that aren't folded, beside those that destroy something."""
_COMMAND = re.compile("`([^`]+)`")
_SHOWN_WAIT = 0.01
"""Shortest wait between requests that a page shows, in seconds."""


@cache
def environment(*templates: str) -> Environment:
    """Return an environment with these templates, compiled once, and with filters for names, messages and times."""
    made = Environment(
        loader=DictLoader({name: template(name) for name in templates}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        name=words.name,
        message=words.message,
        breaks=words.breaks,
        code=_code,
        command=lambda query: printable(as_command(query)),
        number=words.number,
        time=words.time,
        duration=duration,
        age=words.age,
        counted=counted,
        took=words.took,
        exit_code=words.exit_code,
    )
    return made


def render(report: Report) -> str:
    """Render the page. The same report always gives the same bytes."""
    headline = words.headline(report)
    return filled(
        "page.html",
        headline,
        _entry(report, headline),
        r=report,
        done=words.done(report),
        outcomes=report.outcomes(),
        reasons=words.reasons(report.tallies),
        clusters=_by_cluster(report.tallies),
        policies=_by_policy(report),
        drift_kinds=_by_kind(report),
        topics=listings.topics(report),
        findings=listings.findings(report),
        access=[listing for owned in report.history.owned for listing in listings.listings_of(owned)],
        periods=charts.columns(report.history.periods, list(ShownState), report.history.unit),
        waits=[each for each in report.requests.waiting if each.between_seconds >= _SHOWN_WAIT or each.sent_again],
        ended={name for _, counts in report.history.periods for name in counts},
        diff=_diff(report),
        phases=report.requests.phases,
        timeline=charts.timeline([each.seconds for each in report.requests.phases if each.phase != times.WAITED]),
        WAITED=times.WAITED,
        bar=charts.bar,
        ShownState=list(ShownState),
        Age=list(Age),
        Changed=list(Changed),
        LISTED_WAITS=LISTED_WAITS,
    )


def filled(name: str, headline: words.Headline, entry: str, **contents: Any) -> str:
    """Fill a template that begins as `parts.begin`. `entry`: the page's entry in an index (`entry_of`)."""
    style, script = template("page.css"), template("page.js")
    return (
        environment(name, "parts.html")
        .get_template(name)
        .render(
            version=__version__,
            headline=headline,
            entry=entry,
            style=Markup(style),
            script=Markup(script),
            style_hash=hash_of(style),
            script_hash=hash_of(script),
            **contents,
        )
    )


def entry_of(headline: words.Headline, *, began: datetime | None, about: str, by: str, clusters: str) -> str:
    """Return a page's entry in an index, as JSON; `index.IndexEntry` reads it."""
    return json.dumps(
        {
            "headline": headline.text,
            "tone": headline.tone,
            "began": words.time(began),
            "about": words.name(about),
            "by": words.name(by),
            "clusters": words.name(clusters),
        }
    )


def _entry(report: Report, headline: words.Headline) -> str:
    run, span = report.run, report.span
    began = run.started_at if run is not None else span[0] if span is not None else None
    about = f"{report.kind} {run.run_id}" if run is not None else f"until {words.time(span[1] if span else None)}"
    clusters = ", ".join(report.limits.clusters) or (run.clusters if run is not None else "")
    by = run.requested_by if run is not None else None
    return entry_of(headline, began=began, about=about, by=by or "", clusters=clusters or "")


def template(name: str) -> str:
    """Read a file of the folder `templates`."""
    return (files("topicledger.report") / "templates" / name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """The hash by which a Content-Security-Policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _code(text: str) -> Markup:
    """Format the `commands` in a text as code."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))


def _diff(report: Report) -> dict[str, Any]:
    """Additions, removals and changes of a run by owner and cluster, for the listed actions.

    Groups and lines that destroy something come first, and are all shown; of the others, a few lines are.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in report.rows if report.run is not None else ():
        if row.action is None or row.outcome in (*PROBLEMS, ShownState.SKIPPED, ShownState.UNKNOWN):
            continue
        key = (words.name(row.owner) or "", words.name(row.cluster))
        line = {"sign": sign_of(row.action), "action": row.action, "topic": words.name(row.topic)}
        groups.setdefault(key, []).append(
            {**line, "what": words.message(row.change.what), "destroys": row.change.destroys}
        )
    found = []
    for (owner, cluster), lines in sorted(groups.items(), key=lambda item: (not item[0][0], item[0])):
        destroys = [line for line in lines if line["destroys"]]
        others = [line for line in lines if not line["destroys"]]
        room = max(0, _LINES - len(destroys))
        group = {"owner": owner or NO_OWNER, "cluster": cluster, "total": len(lines), "destroys": len(destroys)}
        found.append({**group, "lines": [*destroys, *others[:room]], "folded": others[room:]})
    found.sort(key=lambda group: not group["destroys"])
    shown = [group for place, group in enumerate(found) if place < _GROUPS or group["destroys"]]
    return {"groups": shown, "left_out": len(found) - len(shown)}


def _by_cluster(tallies: Sequence[Tally]) -> list[dict[str, Any]]:
    """Counts of topics by cluster, phase and outcome; clusters beyond the 40 largest are added up."""
    sizes: dict[str, int] = {}
    for each in tallies:
        sizes[each.cluster or NO_CLUSTER] = sizes.get(each.cluster or NO_CLUSTER, 0) + each.topics
    largest = sorted(sizes, key=lambda cluster: (-sizes[cluster], cluster))[:_CLUSTERS]
    rest = f"{words.number(len(sizes) - len(largest))} other clusters"
    found: dict[str, dict[str, dict[str, int]]] = {name: {} for name in sorted(largest)}
    for each in tallies:
        name = each.cluster or NO_CLUSTER
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
    """Policies over all clusters, the one that most topics violate first; refusing and warning ones separately."""
    alike: dict[tuple[str, str], list[Any]] = {}
    for each in report.policies:
        alike.setdefault((each.policy, each.mode), []).append(each)
    found = [
        {
            "policy": policy,
            "mode": mode,
            "topics": sum(each.topics for each in group),
            "clusters": [each.cluster or NO_CLUSTER for each in group],
            "example": group[0].example,
            "message": group[0].message,
        }
        for (policy, mode), group in alike.items()
    ]
    return sorted(found, key=lambda row: (row["mode"], -row["topics"], row["policy"]))


def _by_kind(report: Report) -> list[dict[str, Any]]:
    """Kinds of drift with the ages of their findings: errors first, then warnings, then the rest."""
    if report.drift is None:
        return []
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for each in report.drift.tallies:
        severity = each.severity or ""
        row = kinds.setdefault(
            (each.kind, severity), {"kind": each.kind, "severity": severity, "ages": {}, "clusters": {}}
        )
        row["ages"][each.age] = row["ages"].get(each.age, 0) + each.findings
        name = each.cluster or NO_CLUSTER
        row["clusters"][name] = row["clusters"].get(name, 0) + each.findings
    for row in kinds.values():
        row["findings"] = sum(row["ages"].values())
        row["advice"] = advice.of_drift(row["kind"], report.drift.settings, row["clusters"])
        row["clusters"] = sorted(row["clusters"], key=lambda name: (-row["clusters"][name], name))
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(kinds.values(), key=lambda row: (order.get(row["severity"], 3), -row["findings"], row["kind"]))
