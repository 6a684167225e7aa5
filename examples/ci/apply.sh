#!/usr/bin/env bash
# Loads the manifests of a change that was merged, approves the plan that was reviewed with it, and applies that plan.
#
#   apply.sh RUN_ID WHO FILE_OR_FOLDER...
#
# WHO merged the change. What the manifests no longer ask for as it was planned is refused, topic by topic: another
# change may have been merged meanwhile. Needs TOPICLEDGER_CONFIG, the run settings.
set -euo pipefail

run_id=$1 who=$2
shift 2

topicledger load_manifests --config "$TOPICLEDGER_CONFIG" --requested-by "$who" "$@"
# A plan with nothing to do is finished and takes no approval (2); one that lacks approval isn't applied (5).
topicledger runs approve --config "$TOPICLEDGER_CONFIG" --run-id "$run_id" --by "$who" --note merged || (($? == 2))
topicledger apply --config "$TOPICLEDGER_CONFIG" --run-id "$run_id" --wait
