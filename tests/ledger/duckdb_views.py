"""Print the rows of every view as JSON, read without Spark: DuckDB over delta-rs, run in the environment build/queries.

Arguments: the tables' root, and views.sql.
"""

import json
import re
import sys
from pathlib import Path

import duckdb
from deltalake import DeltaTable, QueryBuilder

root, views = map(Path, sys.argv[1:])
connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
connection.execute("CREATE MACRO explode(items) AS unnest(items)")
for folder in root.iterdir():
    batches = QueryBuilder().register("stored", DeltaTable(folder)).execute("SELECT * FROM stored")
    connection.register("stored", batches)
    connection.execute(f"CREATE TABLE {folder.name} AS SELECT * FROM stored")
    connection.unregister("stored")
found = {}
for statement in re.findall(r"^CREATE OR REPLACE VIEW \w+ AS\n.*?;$", views.read_text(), re.MULTILINE | re.DOTALL):
    connection.execute(statement)
    name = statement.split()[4]
    result = connection.execute(f"SELECT * FROM {name}")
    columns = [column[0] for column in result.description]
    found[name] = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
print(json.dumps(found, default=lambda moment: moment.isoformat()))
