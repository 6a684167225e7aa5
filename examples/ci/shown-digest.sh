#!/usr/bin/env bash
# Prints the digest that the last comment about a run shows, for `runs approve --plan`; nothing if it shows none.
#
#   shown-digest.sh RUN_ID [UNTIL] < COMMENTS
#
# COMMENTS: a line for each comment that the pipeline wrote, oldest first: when, and its first line, as
# `runs show --format markdown` prints it. UNTIL: later comments don't count, since nobody has read them; in UTC, as
# 2026-01-31T12:00:00Z.
set -euo pipefail
export LC_ALL=C # so that times are compared as text

run_id=$1 until=${2:-} digest=''

while read -r at line; do
    if [[ $line == "<p>run <code>$run_id</code>: "* && (-z $until || ! $at > $until) ]]; then
        digest=''
        if [[ $line =~ '<br>to approve exactly this plan, add: <code>--plan '([0-9a-f]{16,64})'</code>' ]]; then
            digest=${BASH_REMATCH[1]}
        fi
    fi
done
printf '%s\n' "$digest"
