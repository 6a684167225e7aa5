#!/usr/bin/env bash
# Makes build/airflow: an environment of its own with Airflow and its Spark provider, for the tests of examples/airflow.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

wanted=requirements-airflow.lock
made=build/airflow/.made-from
if ! cmp --quiet "$wanted" "$made"; then
    rm -rf build/airflow
    mkdir -p build
    "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" -m venv build/airflow
    build/airflow/bin/python -m pip install --disable-pip-version-check --quiet --retries 2 --require-hashes \
        --requirement "$wanted"
    cp "$wanted" "$made"
fi
