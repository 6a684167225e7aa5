#!/usr/bin/env bash
# Makes .venv with every package of requirements.lock and topicledger itself. If something is missing, one line names it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# pyenv has shims for versions that aren't installed, so only a Python that runs counts.
is_python311() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
        if is_python311 "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "Python 3.11 is missing: install it (Debian 12, Ubuntu: python3.11 and python3.11-venv), or name it: make PYTHON=/path/to/python3.11"
}

check_java() {
    local java=java version
    if [[ -n ${JAVA_HOME:-} ]]; then
        java=$JAVA_HOME/bin/java
    fi
    version=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.specification\.version = //p') || true
    [[ -n $version ]] || fail "Java is missing ($java does not run): install Java 17, e.g. openjdk-17-jdk-headless"
    # Java 8 reports its version as 1.8.
    ((${version%%.*} >= 17)) || fail "Java $version is too old ($java): install Java 17, e.g. openjdk-17-jdk-headless"
}

install() {
    local errors=build/logs/pip-errors.log
    .venv/bin/python -m pip install --disable-pip-version-check --retries 2 "$@" 2>"$errors" && return
    if grep -qE 'NewConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|Connection (refused|reset)|ProxyError' "$errors"; then
        fail "the Python package index can't be reached: check the network and pip's settings (index, proxy), then start again"
    fi
    tail -n 20 "$errors" >&2
    fail "pip could not install the packages; its output is above and in $errors"
}

check_java
mkdir -p build/logs
if ! is_python311 .venv/bin/python; then
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "Python's venv module is missing: install it (Debian, Ubuntu: python3.11-venv)"
    "$python" -m venv --clear .venv || fail "can't make a virtual environment in .venv"
fi
install --requirement requirements.lock
# Uses the setuptools of requirements.lock; pip would fetch one whose digest isn't pinned.
install --no-deps --no-build-isolation --quiet --editable .
.venv/bin/python -c 'import topicledger.schemas' || fail "the package can't be imported from .venv"
touch .venv/.complete
