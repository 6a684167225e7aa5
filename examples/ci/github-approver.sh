#!/usr/bin/env bash
# Ends with 0 if a GitHub account has no part in a pull request, else with 1 and the reason.
#
#   github-approver.sh WHO NUMBER
#
# Needs GH_TOKEN and GITHUB_REPOSITORY.
set -euo pipefail
set -f # names of bots have brackets

who=$1 pull=repos/$GITHUB_REPOSITORY/pulls/$2

about=$(gh api "$pull" --jq '.commits, .user.login')
people=$(gh api "$pull/commits?per_page=100" --jq '.[] | .author.login // "unknown", .committer.login // "unknown"')
"$(dirname "$0")/approver.sh" "$who" $about $people
