#!/usr/bin/env bash
# setup_environment.sh NAME FOLDER: makes an environment of its own in FOLDER, with what requirements-NAME.lock says.
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
