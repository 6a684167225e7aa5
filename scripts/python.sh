#!/usr/bin/env bash
# TOPICLEDGER_PYTHON as Spark's driver and workers on this machine start it; spark-submit.sh and session.py use it.
#
# Spark puts its own pyspark.zip before what is installed. It holds sources only, which every process would compile
# anew: a second each, and a run has five or six. Where the same package is installed for this Python, that is taken.
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
