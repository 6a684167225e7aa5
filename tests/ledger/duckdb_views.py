"""Print the rows of every view as JSON, read without Spark: DuckDB over delta-rs, run in the environment build/queries.

Arguments: the tables' root, and the folder of views.sql.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from deltalake import DeltaTable, QueryBuilder

root, queries = map(Path, sys.argv[1:])
connection = duckdb.connect()
# The session's time zone must not matter: here days have 23 and 25 hours, too.
connection.execute("SET TimeZone = 'Europe/Berlin'")
connection.execute((queries / "duckdb.sql").read_text())
for folder in root.iterdir():
    batches = QueryBuilder().register("stored", DeltaTable(folder)).execute("SELECT * FROM stored")
    connection.register("stored", batches)
    connection.execute(f"INSERT INTO {folder.name} BY NAME SELECT * FROM stored")
    connection.unregister("stored")
connection.execute((queries / "views.sql").read_text())
found = {}
for (name,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
    result = connection.execute(f"SELECT * FROM {name}")
    columns = [column[0] for column in result.description]
    found[name] = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]


def shown(moment):
    return (moment.astimezone(UTC) if isinstance(moment, datetime) else moment).isoformat()


print(json.dumps(found, default=shown))
