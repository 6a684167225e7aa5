#!/usr/bin/env bash
# Prints the digest of the plan that reviewers of a pull request saw, for `runs approve --plan`; nothing if the plan needed
# no approval when it was shown.
#
#   github-plan.sh RUN_ID NUMBER MERGED_AT
#
# It is in the last comment about the run that the job `plan` wrote before the merge, unless somebody edited that comment.
# Needs GH_TOKEN and GITHUB_REPOSITORY.
set -euo pipefail

comments=repos/$GITHUB_REPOSITORY/issues/$2/comments?per_page=100
gh api "$comments" --paginate --jq '.[] | select(.user.login == "github-actions[bot]" and .updated_at == .created_at)
    | "\(.created_at) \(.body | split("\n")[0])"' | "$(dirname "$0")/shown-digest.sh" "$1" "$3"
