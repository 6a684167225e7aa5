#!/usr/bin/env bash
# Makes build/docs-venv: an environment of its own with mkdocs-material, for `make docs`.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

wanted=requirements-docs.lock
made=build/docs-venv/.made-from
if ! cmp --quiet "$wanted" "$made"; then
    rm -rf build/docs-venv
    mkdir -p build
    "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" -m venv build/docs-venv
    build/docs-venv/bin/python -m pip install --disable-pip-version-check --quiet --retries 2 --require-hashes \
        --requirement "$wanted"
    cp "$wanted" "$made"
fi
