#!/usr/bin/env bash
# Ends with 0 if the user who started this GitLab job has no part in the merge request of its commit, else with 1 and the
# reason.
#
#   gitlab-approver.sh
#
# The account is compared with the author of the merge request. GitLab knows only the e-mail addresses of commits, so these
# are compared with the user's own. Needs GITLAB_TOKEN.
set -euo pipefail

here=$(dirname "$0")
. "$here/gitlab.sh"

merged=$(merge_request)
read -r number author <<<"$merged"

# One line for each person; a full page may have been cut off.
people=$(get "projects/$CI_PROJECT_ID/merge_requests/$number/commits?per_page=100" | python3 -c '
import json, sys

commits = json.load(sys.stdin)
print(len(commits) if len(commits) < 100 else 101)
for commit in commits:
    print(commit["author_email"] or "unknown")
    print(commit["committer_email"] or "unknown")
')
mapfile -t people <<<"$people"

"$here/approver.sh" "$GITLAB_USER_LOGIN" "${people[0]}" "$author"
"$here/approver.sh" "$GITLAB_USER_EMAIL" "${people[@]}"
