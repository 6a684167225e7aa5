#!/usr/bin/env bash
# Writes requirements.lock anew from pyproject.toml, with a pip-tools of its own in a throw-away environment.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
"${PYTHON:-python3.11}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet pip-tools
"$folder/bin/pip-compile" --quiet --extra dev --strip-extras --allow-unsafe --generate-hashes --no-annotate --no-header \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --upgrade --output-file "$folder/lock" pyproject.toml
{
    # shellcheck disable=SC2016  # the backticks are meant
    printf '# Every package of a development environment, pinned. Made by `make lock`; what is wanted is in pyproject.toml.\n'
    cat "$folder/lock"
} >requirements.lock
