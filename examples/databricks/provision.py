# Databricks notebook source
# Runs `provision` where secrets can't be environment variables of the cluster, as on serverless compute.
# Executors lack the secret: [kafka] observe = "auto" lets the client of Spark Connect ask the clusters.
import json
import os
import tempfile
from pathlib import Path

from topicledger import cli

dbutils = globals()["dbutils"]
for name in ("settings", "run_id", "scope", "secret"):
    dbutils.widgets.text(name, "")
given = dbutils.widgets.get
result = Path(tempfile.mkdtemp(), "result.json")

# COMMAND ----------

os.environ["KAFKA_PASSWORD"] = dbutils.secrets.get(given("scope"), given("secret"))
run = ["--config", given("settings"), "--run-id", given("run_id"), "--wait", "--result-file", str(result)]
code = 0
try:
    cli.main(["provision", *run])
except SystemExit as ended:
    code = int(ended.code or 0)
found = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {}
# Not all of it: Databricks refuses values above 48 KiB.
for name in ("state", "failure_count", "outcomes"):
    dbutils.jobs.taskValues.set(name, found.get(name))
dbutils.jobs.taskValues.set("exit_code", code)
if code:
    raise RuntimeError(f"provision ended with exit code {code}: see the output above")
