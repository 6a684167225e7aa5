"""The commands, with their names, help and options; shared by jobs/*.py and the console script."""

from __future__ import annotations

from topicledger.cli.access import access_group
from topicledger.cli.clusters import clusters_group
from topicledger.cli.drift import drift
from topicledger.cli.maintenance import maintain
from topicledger.cli.manifests import export, load_manifests
from topicledger.cli.options import main
from topicledger.cli.plans import prune, rebalance
from topicledger.cli.policies import policies_group
from topicledger.cli.provisioning import apply, plan, provision
from topicledger.cli.queries import catalog, sql, views_command
from topicledger.cli.reports import report_command
from topicledger.cli.runs import runs_group
from topicledger.cli.schema import schema_group
from topicledger.cli.topics import topics_group

__all__ = ["main"]

for _command in (
    load_manifests,
    plan,
    apply,
    provision,
    prune,
    rebalance,
    drift,
    export,
    runs_group,
    topics_group,
    clusters_group,
    access_group,
    report_command,
    sql,
    views_command,
    catalog,
    maintain,
    policies_group,
    schema_group,
):
    main.add_command(_command)
