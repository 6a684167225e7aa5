"""The user, the principals and the versions that a run is recorded with."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from topicledger import __version__
from topicledger.config.settings import ClusterSettings


def os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have a number only
        return f"uid {os.getuid()}"


def versions() -> dict[str, str]:
    """Return the versions of topicledger, Spark, Delta and kafka-python, as in `runs.versions`."""
    found = {"topicledger": __version__}
    for name, package in (("spark", "pyspark"), ("delta", "delta-spark"), ("kafka-python", "kafka-python")):
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def principal_of(clusters: Sequence[ClusterSettings]) -> str | None:
    """Return the run's user on each cluster as in the settings, without resolving references; None without clusters."""
    names = {cluster.name: str(cluster.client.get("sasl_plain_username", "ANONYMOUS")) for cluster in clusters}
    if len(set(names.values())) <= 1:
        return next(iter(names.values()), None)
    return json.dumps(names)
