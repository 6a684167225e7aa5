#!/usr/bin/env bash
# image.sh [TAG]: builds the image of examples/kubernetes, with the first of docker, podman and buildah that is there.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

for builder in docker podman buildah; do
    if command -v "$builder" >/dev/null; then
        exec "$builder" build --file examples/kubernetes/Containerfile --tag "${1:-topicledger:$(
            sed -n 's/^__version__ = "\(.*\)"$/\1/p' lib/topicledger/__init__.py
        )}" .
    fi
done
echo 'image: there is no docker, podman or buildah on this machine: install one of them' >&2
exit 1
