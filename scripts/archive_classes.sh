#!/usr/bin/env bash
# Writes build/classes/spark.jsa: the classes that a job loads, parsed and checked, so that Java starts from there
# (JEP 350). A job runs once for it, on tables of its own and a cluster that nobody can reach. Java leaves an archive
# unread that isn't of its own version and class path: that costs time only.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

made=build/classes/spark.jsa
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
rm -f "$made"
mkdir -p "${made%/*}"

# It is over before compiling well would pay.
quick='-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m'
TOPICLEDGER_SUBMIT_ARGS="--conf 'spark.driver.defaultJavaOptions=$quick -XX:ArchiveClassesAtExit=$PWD/$made.new'" \
    TOPICLEDGER_LOG_DIR=$folder ./spark-submit.sh scripts/archive_classes.py "$folder" >"$folder/said" 2>&1 || {
    cat "$folder/said" >&2
    echo "setup: no archive of classes could be made; jobs start without it, only slower" >&2
}
if [[ -f $made.new ]]; then
    mv "$made.new" "$made"
fi
touch build/classes/.complete
