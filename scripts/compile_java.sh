#!/usr/bin/env bash
# compile_java.sh SOURCE JAR WITHOUT: compiles a Java class that jobs are given into JAR, alone in its folder. It needs a
# JDK; where there is only a Java runtime, jobs go on without the class, and WITHOUT says what that means.
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
    # In one step: a job may start meanwhile.
    "${bin}jar" --create --file "$2.new" -C "$classes" .
    mv "$2.new" "$2"
else
    rm -f "$2"
    echo "setup: no javac: $3" >&2
fi
touch "$folder/.complete"
