# Functions of the GitLab scripts, which source this file. Needs GITLAB_TOKEN.

# Prints the answer of GitLab's API to a GET request.
get() {
    # On stdin: everybody on the machine can read a process's arguments.
    printf 'header = "PRIVATE-TOKEN: %s"\n' "$GITLAB_TOKEN" |
        curl --config - --fail --silent --show-error "$CI_API_V4_URL/$1"
}

# Prints the number and the author of the only merge request that ended with the job's commit.
merge_request() {
    get "projects/$CI_PROJECT_ID/repository/commits/$CI_COMMIT_SHA/merge_requests" | python3 -c '
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
'
}
