#!/usr/bin/env bash
# setup_environment.sh NAME FOLDER: makes a separate environment in FOLDER, with the packages of requirements-NAME.lock.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

wanted=requirements-$1.lock
folder=$2
made=$folder/.made-from
if ! cmp --quiet "$wanted" "$made"; then
    rm -rf "$folder"
    mkdir -p build
    "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" -m venv "$folder"
    "$folder/bin/python" -m pip install --disable-pip-version-check --quiet --retries 2 --require-hashes \
        --requirement "$wanted"
    cp "$wanted" "$made"
fi
