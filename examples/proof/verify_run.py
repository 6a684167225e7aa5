"""Computes a run's digests without Spark: python verify_run.py LEDGER RUN_ID (needs `deltalake` and `pyarrow`).

A key is read from the environment variable TOPICLEDGER_PROOF_KEY. README.md describes the digests.
"""

import hashlib
import hmac
import os
import sys
from collections import defaultdict

from deltalake import DeltaTable


def text(value):
    if value is None:
        return "-"
    if isinstance(value, dict):  # a struct
        return "(" + "".join(map(text, value.values())) + ")"
    if isinstance(value, list) and value and isinstance(value[0], tuple):  # a map
        return "{" + "".join(text(part) for pair in sorted(value) for part in pair) + "}"
    if isinstance(value, list):
        return "[" + "".join(map(text, value)) + "]"
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{len(plain.encode())}:{plain}"


def row_text(row):
    return "".join(text(name) + text(row[name]) for name in sorted(row) if row[name] is not None)


def rows_of(root, table, run_id):
    found = DeltaTable(f"{root}/{table}").to_pyarrow_table(filters=[("run_id", "=", run_id)])
    for i, each in enumerate(found.schema):  # moments as microseconds; an empty map counts as null
        if str(each.type).startswith("timestamp"):
            found = found.set_column(i, each.name, found[each.name].cast("int64"))
    maps = {each.name for each in found.schema if str(each.type).startswith("map")}
    return [{name: None if name in maps and not row[name] else row[name] for name in row} for row in found.to_pylist()]


def sha256(value):
    return hashlib.sha256(value.encode()).hexdigest()


def rows_digest(rows):
    parts = defaultdict(list)
    for row in rows:
        digest = sha256(row_text(row))
        parts[digest[:2]].append(digest)
    return sha256("".join(sha256("".join(sorted(parts[part]))) for part in sorted(parts)))


def verify(root, run_id, key=None):
    (run,) = rows_of(root, "runs", run_id)
    digest, recorded = run.pop("digest"), dict(run["proof"])
    del run["notified"]  # written after the run's end
    own = hmac.new(key.encode(), row_text(run).encode(), "sha256").hexdigest() if key else sha256(row_text(run))
    wrong = [] if hmac.compare_digest(own, digest) else ["runs"]
    tables = [name.removesuffix("_sha256") for name in recorded if name.endswith("_sha256")]
    return wrong + [name for name in tables if rows_digest(rows_of(root, name, run_id)) != recorded[f"{name}_sha256"]]


if __name__ == "__main__":
    differ = verify(sys.argv[1], sys.argv[2], os.environ.get("TOPICLEDGER_PROOF_KEY"))
    sys.exit(f"not as the run left them: {', '.join(differ)}" if differ else 0)
