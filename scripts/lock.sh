#!/usr/bin/env bash
# Regenerates the lock files from pyproject.toml and the requirements-*.in, with pip-tools in a temporary environment.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet pip-tools

# lock SOURCE FILE WHAT [OPTION...]
lock() {
    "$folder/bin/pip-compile" --quiet --strip-extras --allow-unsafe --generate-hashes --no-annotate --no-header \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --upgrade --output-file "$folder/lock" "${@:4}" "$1"
    {
        # shellcheck disable=SC2016  # the backticks are intended
        printf '# Every package of %s, pinned. Made by `make lock`; the direct requirements are in %s.\n' "$3" "$1"
        cat "$folder/lock"
    } >"$2"
    rm "$folder/lock"
}

lock pyproject.toml requirements.lock 'a development environment' --extra dev --build-deps-for editable
lock requirements-airflow.in requirements-airflow.lock 'the Airflow environment'
lock requirements-docs.in requirements-docs.lock 'the environment that builds docs/'
lock requirements-s3.in requirements-s3.lock 'the environment of the S3 that tests keep tables in'
lock requirements-ci.in requirements-ci.lock 'the environment that checks examples/ci and examples/kubernetes'
