#!/usr/bin/env bash
# Plans the manifests of a proposed change without loading them, and writes the plan to PLAN_FILE for people to read.
#
#   plan.sh PLAN_FILE RUN_ID WHO FILE_OR_FOLDER... [OPTION_OF_PLAN...]
#
# PLAN_FILE must be outside the checkout: a link of that name in the change would have another file written or published.
# WHO is the author of the change. Needs TOPICLEDGER_CONFIG, the run settings. Ends with 0 if the plan may be approved, and with 1
# if a topic is refused, a guard stops something, a file is invalid, or a cluster has no plan because it can't be reached:
# PLAN_FILE has the reasons, and the plan of the other clusters.
set -euo pipefail

plan_file=$1 run_id=$2 who=$3
shift 3

code=0 log=$(mktemp)
topicledger plan --config "$TOPICLEDGER_CONFIG" --run-id "$run_id" --requested-by "$who" "$@" 2>"$log" || code=$?
cat "$log" >&2
if ((code == 2)) || ! topicledger runs show --config "$TOPICLEDGER_CONFIG" "$run_id" --format markdown >"$plan_file"; then
    # Four blanks before each line: nothing in it is Markdown. A comment on GitHub has at most 65,536 characters.
    {
        printf 'The plan of run `%s` ended with exit code %s:\n\n' "$run_id" "$code"
        head -c 12000 "$log" | sed 's/^/    /'
    } >"$plan_file"
fi
rm -- "$log"
((code == 0))
