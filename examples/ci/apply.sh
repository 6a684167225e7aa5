#!/usr/bin/env bash
# Approves the plan that was reviewed with a merged change, loads its files as they were planned, and applies it.
#
#   apply.sh RUN_ID WHO FILE_OR_FOLDER...
#
# WHO merged the change. If no file is as it was planned any more, nothing is loaded or sent (2): plan again. Files that
# the plan doesn't have are left out. Needs TOPICLEDGER_CONFIG, the run settings. With TOPICLEDGER_ALLOW, such as
# deletes=2, the approval lets through what guards stopped: see `runs approve --allow`.
set -euo pipefail

run_id=$1 who=$2
shift 2

# A plan with nothing to send or load is finished and takes no approval (2); one that lacks approval isn't applied (5).
allow=${TOPICLEDGER_ALLOW:-}
topicledger runs approve --config "$TOPICLEDGER_CONFIG" "$run_id" --by "$who" --note merged \
    ${allow:+--allow "$allow"} || [[ $? == 2 && -z $allow ]]
topicledger apply --config "$TOPICLEDGER_CONFIG" --run-id "$run_id" --wait "$@"
