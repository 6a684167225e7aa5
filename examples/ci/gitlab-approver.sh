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

get() {
    # On stdin: everybody on the machine can read a process's arguments.
    printf 'header = "PRIVATE-TOKEN: %s"\n' "$GITLAB_TOKEN" |
        curl --config - --fail --silent --show-error "$CI_API_V4_URL/projects/$CI_PROJECT_ID/$1"
}

merged=$(get "repository/commits/$CI_COMMIT_SHA/merge_requests" | python3 -c '
import json, os, sys

sha, branch = os.environ["CI_COMMIT_SHA"], os.environ["CI_DEFAULT_BRANCH"]
found = [
    each
    for each in json.load(sys.stdin)
    if (each["state"], each["target_branch"], each["sha"]) == ("merged", branch, sha)
]
if len(found) != 1:
    sys.exit(f"{len(found)} merge requests ended with {sha}: let somebody run `topicledger runs approve`")
print(found[0]["iid"], found[0]["author"]["username"])
')
read -r number author <<<"$merged"

# One line for each person; a full page may have been cut off.
people=$(get "merge_requests/$number/commits?per_page=100" | python3 -c '
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
