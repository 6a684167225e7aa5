#!/usr/bin/env bash
# Runs TOPICLEDGER_PYTHON for Spark's driver and workers on this machine; spark-submit.sh and session.py use it.
#
# Spark puts its own pyspark.zip before installed packages. It has only sources, which each process would compile again:
# one second for each of five or six processes in a run. If the same package is installed, that one is used instead.
set -euo pipefail

prefix=${TOPICLEDGER_PYTHON%/bin/*}
IFS=: read -ra entries <<<"${PYTHONPATH:-}"
kept=()
for entry in ${entries[@]+"${entries[@]}"}; do
    [[ $entry == "$prefix"/lib/*/pyspark/python/lib/*.zip ]] || kept+=("$entry")
done
PYTHONPATH=$(IFS=: && printf '%s' "${kept[*]-}")
export PYTHONPATH
exec "$TOPICLEDGER_PYTHON" "$@"
