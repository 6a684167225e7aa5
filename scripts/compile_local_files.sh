#!/usr/bin/env bash
# Writes build/jars/local-files/local-files.jar, for ledgers on local disks (ledger/LocalFiles.java says what
# it does). It needs a JDK; where there is only a Java runtime, jobs use Hadoop's own local files.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

folder=build/jars/local-files
mkdir -p "$folder"
rm -f "$folder"/*.jar
bin=${JAVA_HOME:+$JAVA_HOME/bin/}
if command -v "${bin}javac" >/dev/null && command -v "${bin}jar" >/dev/null; then
    classes=$(mktemp -d)
    trap 'rm -rf -- "$classes"' EXIT
    spark=$(.venv/bin/python -I -c 'import importlib.util; print(*importlib.util.find_spec("pyspark").submodule_search_locations)')
    "${bin}javac" --release 17 -cp "$spark/jars/*" -d "$classes" lib/topicledger/ledger/LocalFiles.java
    "${bin}jar" --create --file "$folder/local-files.jar" -C "$classes" .
else
    echo "setup: no javac: ledgers on local disks are slower, and two processes must not write one at once" >&2
fi
touch "$folder/.complete"
