#!/usr/bin/env bash
# compile_java.sh SOURCE JAR WITHOUT: compiles a Java class for jobs into JAR, the only file in its folder. This needs a
# JDK. With only a Java runtime, jobs run without the class, and WITHOUT describes the consequences.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

folder=${2%/*}
mkdir -p "$folder"
bin=${JAVA_HOME:+$JAVA_HOME/bin/}
if command -v "${bin}javac" >/dev/null && command -v "${bin}jar" >/dev/null; then
    classes=$(mktemp -d)
    trap 'rm -rf -- "$classes"' EXIT
    spark=$(.venv/bin/python -I -c 'import importlib.util; print(*importlib.util.find_spec("pyspark").submodule_search_locations)')
    "${bin}javac" --release 17 -cp "$spark/jars/*:build/jars/delta/*" -d "$classes" "$1"
    # Renamed in one step, since a job may start at any time.
    "${bin}jar" --create --file "$2.new" -C "$classes" .
    mv "$2.new" "$2"
else
    rm -f "$2"
    echo "setup: no javac: $3" >&2
fi
touch "$folder/.complete"
