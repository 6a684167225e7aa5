#!/usr/bin/env bash
# Installs Debian's Chromium and its driver if they are missing, and puts axe-core into build/browser for the tests.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

fail() {
    printf 'setup-browser: %s\n' "$*" >&2
    exit 1
}

install_chromium() {
    local as_root=()
    if [[ $EUID -ne 0 ]]; then
        command -v sudo >/dev/null || fail "Chromium is missing: install chromium and chromium-driver, as root"
        as_root=(sudo)
    fi
    command -v apt-get >/dev/null || fail "Chromium is missing: put it at /usr/bin/chromium and its driver at /usr/bin/chromedriver"
    "${as_root[@]}" apt-get update --quiet
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install --quiet --yes --no-install-recommends chromium chromium-driver
}

if [[ ! -x /usr/bin/chromium || ! -x /usr/bin/chromedriver ]]; then
    install_chromium
fi

wanted=tests/browser/axe.txt
made=build/browser/.made-from
if ! cmp --quiet "$wanted" "$made"; then
    rm -rf build/browser
    mkdir -p build/browser
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --retries 2 --no-deps --require-hashes \
        --no-compile --target build/browser --requirement "$wanted"
    cp "$wanted" "$made"
fi
