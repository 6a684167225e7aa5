#!/usr/bin/env bash
# test_spark.sh [SPARK...]: runs tests on other versions of Spark and Python, each in build/spark-VERSION with the packages
# of requirements-spark-VERSION.lock and Delta's jars for it, and on that of .venv. A version whose Python is missing is
# skipped. If one version fails, the others still run, and the exit code is 1.
#
#   TOPICLEDGER_TESTS  arguments for pytest instead of these tests
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# Functions over Arrow, transforms of rows, the tables, and whole runs on a real broker.
tests=(tests/unit/test_arrow.py tests/unit/test_manifests.py tests/unit/test_decide.py tests/ledger/test_tables.py
    tests/broker/test_provisioning.py -m 'not thorough')
if [[ -n ${TOPICLEDGER_TESTS:-} ]]; then
    read -ra tests <<<"$TOPICLEDGER_TESTS"
fi

# find_python VERSION: the name of a Python that runs; pyenv has commands for versions that it doesn't select.
find_python() {
    local candidate
    for candidate in "python$1" "$(pyenv root 2>/dev/null)"/versions/"$1".*/bin/python; do
        if "$candidate" -c '' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# prepare SPARK PYTHON: makes build/spark-SPARK, with the packages in venv and the jars in jars.
prepare() {
    local folder=build/spark-$1 lock=requirements-spark-$1.lock name
    .venv/bin/python scripts/fetch_jars.py "delta-$1" || return
    mkdir -p "$folder/jars"
    ln -sfn "$PWD/build/jars/delta-$1" "$folder/jars/delta"
    for name in kafka kafka-tools local-files s3-log-store; do
        ln -sfn "$PWD/build/jars/$name" "$folder/jars/$name"
    done
    cmp --quiet "$lock" "$folder/.made-from" && return
    rm -rf "$folder/venv"
    "$2" -m venv "$folder/venv" || return
    "$folder/venv/bin/python" -m pip install --disable-pip-version-check --quiet --retries 2 --require-hashes \
        --requirement "$lock" || return
    cp "$lock" "$folder/.made-from"
}

code=0
(($#)) || set -- 4.0 4.1 4.2
for spark; do
    case $spark in
        4.0) version=3.12 ;;
        4.1) version=3.13 ;;
        4.2) version= ;;
        *)
            printf 'test-spark: unknown Spark %s: use 4.0, 4.1 or 4.2\n' "$spark" >&2
            exit 2
            ;;
    esac
    python=$PWD/.venv/bin/python jars=$PWD/build/jars
    if [[ -n $version ]]; then
        if ! found=$(find_python "$version"); then
            printf 'test-spark: skipped Spark %s: there is no Python %s on this machine\n' "$spark" "$version" >&2
            continue
        fi
        prepare "$spark" "$found" || { code=1; continue; }
        python=$PWD/build/spark-$spark/venv/bin/python jars=$PWD/build/spark-$spark/jars
    fi
    printf 'Spark %s, %s\n' "$("$python" -c 'import pyspark; print(pyspark.__version__)')" "$("$python" -V)"
    # Drivers and workers have the same Python.
    TOPICLEDGER_JARS=$jars PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python "$python" -m pytest -q "${tests[@]}" ||
        code=1
done
exit "$code"
