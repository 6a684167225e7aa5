#!/usr/bin/env bash
# Regenerates the lock files from pyproject.toml and the requirements-*.in, with pip-tools in temporary environments.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT

# lock PYTHON FILE WHAT FROM SOURCE... [OPTION...]: FROM says where the direct requirements are.
lock() {
    if [[ ! -d $folder/$1 ]]; then
        "$1" -m venv "$folder/$1"
        "$folder/$1/bin/python" -m pip install --quiet pip-tools
    fi
    "$folder/$1/bin/pip-compile" --quiet --strip-extras --allow-unsafe --generate-hashes --no-annotate --no-header \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --upgrade --output-file "$folder/lock" "${@:5}"
    {
        # shellcheck disable=SC2016  # the backticks are intended
        printf '# Every package of %s, pinned. Made by `make lock`; the direct requirements are in %s.\n' "$3" "$4"
        cat "$folder/lock"
    } >"$2"
    rm "$folder/lock"
}

# lock_spark PYTHON SPARK
lock_spark() {
    "$1" -c '' 2>/dev/null || { printf 'lock: no %s: requirements-spark-%s.lock stays as it is\n' "$1" "$2" >&2; return 0; }
    lock "$1" "requirements-spark-$2.lock" "the environment for Spark $2, with $1" \
        "pyproject.toml and requirements-spark-$2.in" pyproject.toml "requirements-spark-$2.in"
}

python=${PYTHON:-python3.11}
lock "$python" requirements.lock 'a development environment' pyproject.toml pyproject.toml --extra dev --extra spark \
    --build-deps-for editable
for name in airflow docs ci queries; do
    case $name in
        airflow) what='the Airflow environment' ;;
        docs) what='the environment that builds docs/' ;;
        ci) what='the environment that checks examples/ci, examples/databricks and examples/kubernetes' ;;
        queries) what='the environment that reads tables without Spark, and files for data catalogs' ;;
    esac
    lock "$python" "requirements-$name.lock" "$what" "requirements-$name.in" "requirements-$name.in"
done
# Without the package's own dependencies: the server runs in an environment of its own.
"$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["s3"])' \
    >"$folder/s3.in"
lock "$python" requirements-s3.lock 'the environment of the S3 that tests keep tables in' pyproject.toml "$folder/s3.in"
lock_spark python3.12 4.0
lock_spark python3.13 4.1
