#!/usr/bin/env bash
# Makes dist/topicledger-VERSION-py3-none-any.whl: the package with its schemas, conf/ and the jars that are compiled.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

stage=$(mktemp -d)
trap 'rm -rf -- "$stage"' EXIT
mkdir "$stage/lib"
# With real files in place of links; setuptools writes beside the sources.
cp -RL lib/topicledger "$stage/lib/"
find "$stage/lib" -name __pycache__ -type d -prune -exec rm -rf {} +
cp pyproject.toml README.md "$stage/"
cp -R conf "$stage/lib/topicledger/conf"
mkdir "$stage/lib/topicledger/jars"
for jar in build/jars/{local-files,s3-log-store}/*.jar; do
    if [[ -f $jar ]]; then
        cp "$jar" "$stage/lib/topicledger/jars/"
    else
        echo "wheel: no ${jar%/*}, since there is no javac: see docs/installation.md" >&2
    fi
done
# The same sources make the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315532800} .venv/bin/python -m pip wheel --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation --no-index --wheel-dir dist "$stage"
ls dist/topicledger-*.whl
