#!/usr/bin/env bash
# Writes build/classes/spark.jsa: the classes that a job loads, already parsed and verified, so that Java starts faster
# (JEP 350). To make it, one job runs on temporary tables and an unreachable cluster. Java ignores an archive of another
# version or class path, which only costs time. archive_broker.py does the same for the brokers of tests.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

made=build/classes/spark.jsa
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
rm -f "$made"
mkdir -p "${made%/*}"

# The job ends before better compilation would pay off.
quick='-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m'
TOPICLEDGER_SUBMIT_ARGS="--conf 'spark.driver.defaultJavaOptions=$quick \"-XX:ArchiveClassesAtExit=$PWD/$made.new\"'" \
    TOPICLEDGER_LOG_DIR=$folder ./spark-submit.sh scripts/archive_classes.py "$folder" >"$folder/said" 2>&1 || {
    cat "$folder/said" >&2
    echo "setup: the archive of classes could not be made; jobs start without it, but more slowly" >&2
}
if [[ -f $made.new ]]; then
    mv "$made.new" "$made"
fi
.venv/bin/python scripts/archive_broker.py build/jars/kafka >"$folder/said" 2>&1 || {
    cat "$folder/said" >&2
    echo "setup: the archive of a broker's classes could not be made; brokers start without it, but more slowly" >&2
}
touch build/classes/.complete
