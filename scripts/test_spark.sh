#!/usr/bin/env bash
# test_spark.sh [SPARK...]: runs tests on other versions of Spark and Python, each in build/spark-VERSION with the packages
# of requirements-spark-VERSION.lock and Delta's jars for it, and on that of .venv. A version whose Python is missing is
# skipped. If one version fails, the others still run, and the exit code is 1. `connect` runs them through a server of
# Spark Connect 4.1. `wheel-SPARK` installs the wheel beside that Spark in a fresh environment, as a user does, and runs
# tests/spark: commands in a classic session and through Spark Connect.
#
#   TOPICLEDGER_TESTS  arguments for pytest instead of these tests
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# Functions over Arrow, transforms of rows, users' queries, the tables, and whole runs on a real broker.
tests=(tests/unit/test_arrow.py tests/unit/test_manifests.py tests/unit/test_decide.py tests/unit/test_queries.py
    tests/ledger/test_tables.py
    tests/broker/test_provisioning.py -m 'not thorough')
wheel_tests=(tests/spark)
if [[ -n ${TOPICLEDGER_TESTS:-} ]]; then
    read -ra tests <<<"$TOPICLEDGER_TESTS"
    wheel_tests=("${tests[@]}")
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

# test_wheel SPARK PYTHON: runs tests/spark beside that Spark, with the wheel that was made last.
test_wheel() {
    local lock=requirements-spark-$1.lock jars=$PWD/build/jars/delta-$1 version
    if [[ $1 = 4.2 ]]; then
        lock=requirements.lock jars=$PWD/build/jars/delta
    else
        .venv/bin/python scripts/fetch_jars.py "delta-$1" || return
    fi
    version=$(sed -n 's/^pyspark==\([0-9.]*\).*/\1/p' "$lock")
    printf 'The wheel beside Spark %s, %s\n' "$version" "$("$2" -V)"
    TOPICLEDGER_WHEEL=$(ls "$PWD"/dist/topicledger-*.whl) TOPICLEDGER_SPARK=$version TOPICLEDGER_SPARK_PYTHON=$2 \
        TOPICLEDGER_SPARK_JARS=$jars .venv/bin/python -m pytest -q "${wheel_tests[@]}"
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

# serve_connect PYTHON JARS: starts a server of Spark Connect in the background and waits until it listens. Sets `server`
# (its process) and SPARK_REMOTE.
serve_connect() {
    local home port seconds
    home=$("$1" -c 'import pyspark; print(pyspark.__path__[0])')
    port=$("$1" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    SPARK_HOME=$home PYSPARK_PYTHON=$1 PYTHONPATH=$PWD/lib SPARK_LOCAL_IP=127.0.0.1 "$home/bin/spark-submit" \
        --class org.apache.spark.sql.connect.service.SparkConnectServer --master 'local[2]' --driver-memory 1500m \
        --jars "$(printf '%s,' "$2"/delta/*.jar)" --driver-class-path "$2/local-files/local-files.jar" \
        --conf spark.hadoop.fs.file.impl=LocalFiles --conf 'spark.hadoop.fs.AbstractFileSystem.file.impl=LocalFiles$Context' \
        --conf spark.connect.grpc.binding.address=127.0.0.1 --conf "spark.connect.grpc.binding.port=$port" \
        --properties-file conf/spark-defaults.conf spark-internal >build/spark-connect.log 2>&1 &
    server=$!
    for ((seconds = 0; seconds < 120; seconds++)); do
        if "$1" -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))' "$port" 2>/dev/null; then
            export SPARK_REMOTE=sc://127.0.0.1:$port
            return
        fi
        sleep 1
    done
    printf 'test-spark: the Spark Connect server did not start within 120 s: see build/spark-connect.log\n' >&2
    return 1
}

code=0 server=
trap '[[ -z $server ]] || kill "$server"' EXIT
(($#)) || set -- 4.0 4.1 4.2 connect wheel-4.0 wheel-4.1 wheel-4.2
made=
for spark; do
    case $spark in
        4.0) version=3.12 ;;
        4.1) version=3.13 ;;
        4.2) version= ;;
        connect) version=3.13 ;;
        # Other Pythons than those of the tests above.
        wheel-4.0) version=3.13 ;;
        wheel-4.1 | wheel-4.2) version=3.12 ;;
        *)
            printf 'test-spark: unknown Spark %s: use 4.0, 4.1, 4.2, connect or wheel-4.0 to wheel-4.2\n' "$spark" >&2
            exit 2
            ;;
    esac
    python=$PWD/.venv/bin/python jars=$PWD/build/jars
    if [[ -n $version ]]; then
        if ! found=$(find_python "$version"); then
            printf 'test-spark: skipped Spark %s: there is no Python %s on this machine\n' "$spark" "$version" >&2
            continue
        fi
        if [[ $spark = wheel-* ]]; then
            [[ -n $made ]] || scripts/wheel.sh || { code=1; continue; }
            made=yes
            test_wheel "${spark#wheel-}" "$found" || code=1
            continue
        fi
        environment=${spark/connect/4.1}
        prepare "$environment" "$found" || { code=1; continue; }
        python=$PWD/build/spark-$environment/venv/bin/python jars=$PWD/build/spark-$environment/jars
    fi
    if [[ $spark = connect ]]; then
        serve_connect "$python" "$jars" || { code=1; continue; }
    fi
    printf 'Spark %s, %s\n' "$("$python" -c 'import pyspark; print(pyspark.__version__)')" "$("$python" -V)"
    # Drivers and workers have the same Python; the package is not installed there.
    PYTHONPATH=$PWD/lib TOPICLEDGER_JARS=$jars PYSPARK_PYTHON=$python PYSPARK_DRIVER_PYTHON=$python "$python" -m pytest -q "${tests[@]}" ||
        code=1
    if [[ -n $server ]]; then
        kill "$server"
        wait "$server"
        server=
        unset SPARK_REMOTE
    fi
done
exit "$code"
