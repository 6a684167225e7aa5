#!/usr/bin/env bash
# image.sh [TAG]: builds the image of examples/kubernetes, with the first of docker, podman and buildah that works.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

for builder in docker podman buildah; do
    # Docker's client is often there without a daemon.
    if "$builder" info >/dev/null 2>&1; then
        exec "$builder" build --file examples/kubernetes/Containerfile --tag "${1:-topicledger:$(
            sed -n 's/^__version__ = "\(.*\)"$/\1/p' lib/topicledger/__init__.py
        )}" .
    fi
done
echo 'image: no docker, podman or buildah works on this machine: install one of them, or start its daemon' >&2
exit 1
