#!/usr/bin/env bash
# Prints the digest of the plan that reviewers of the merge request of this GitLab job's commit saw, for
# `runs approve --plan`; nothing if the plan needed no approval when it was shown.
#
#   gitlab-plan.sh RUN_ID
#
# It is in the last of the newest 100 notes about the run that the account of GITLAB_TOKEN wrote. Needs GITLAB_TOKEN.
set -euo pipefail

. "$(dirname "$0")/gitlab.sh"

merged=$(merge_request)
read -r number _ <<<"$merged"
OWN=$(get user | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
export OWN
get "projects/$CI_PROJECT_ID/merge_requests/$number/notes?sort=desc&order_by=created_at&per_page=100" | python3 -c '
import json, os, sys

for note in reversed(json.load(sys.stdin)):
    if note["author"]["id"] == int(os.environ["OWN"]):
        print(note["created_at"], note["body"].partition("\n")[0])
' | "$(dirname "$0")/shown-digest.sh" "$1"
