#!/usr/bin/env bash
# Approves the plan that was reviewed with a merged change, loads its files as they were planned, and applies it.
#
#   apply.sh RUN_ID WHO FILE_OR_FOLDER...
#
# WHO merged the change. If no file is as it was planned any more, nothing is loaded or sent (2): plan again. Files that
# the plan doesn't have are left out. Needs TOPICLEDGER_CONFIG, the run settings, and TOPICLEDGER_PLAN, the digest of the
# plan that was reviewed: a plan that changed since is neither approved nor applied (1). Without a digest nothing is approved: the plan
# needed no approval when it was shown, and is applied if that is still so. With TOPICLEDGER_ALLOW, such as deletes=2, the
# approval lets through what guards stopped: see `runs approve --allow`.
set -euo pipefail

run_id=$1 who=$2
shift 2

allow=${TOPICLEDGER_ALLOW:-} plan=${TOPICLEDGER_PLAN:-}
if [[ -n $plan ]]; then
    # A plan with nothing to send or load is finished and takes no approval (2); one that lacks approval isn't applied (5).
    topicledger runs approve --config "$TOPICLEDGER_CONFIG" "$run_id" --by "$who" --note merged --plan "$plan" \
        ${allow:+--allow "$allow"} || [[ $? == 2 && -z $allow ]]
elif [[ -n $allow ]]; then
    echo "no comment shows the digest of the plan of $run_id, so nothing is allowed: plan again" >&2
    exit 2
fi
topicledger apply --config "$TOPICLEDGER_CONFIG" --run-id "$run_id" --wait "$@"
