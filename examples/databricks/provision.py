# Databricks notebook source
# Runs `provision` where secrets can't be environment variables of the cluster, as on serverless compute.
# Executors lack the secret: [kafka] observe = "auto" lets the client of Spark Connect ask the clusters.
import os

from topicledger import cli

dbutils = globals()["dbutils"]
for name in ("settings", "run_id", "scope", "secret"):
    dbutils.widgets.text(name, "")
given = dbutils.widgets.get

# COMMAND ----------

os.environ["KAFKA_PASSWORD"] = dbutils.secrets.get(given("scope"), given("secret"))
code = 0
try:
    cli.main(["provision", "--config", given("settings"), "--run-id", given("run_id"), "--wait"])
except SystemExit as ended:
    code = int(ended.code or 0)
dbutils.jobs.taskValues.set("exit_code", code)
if code:
    raise RuntimeError(f"provision ended with exit code {code}: see the output above")
