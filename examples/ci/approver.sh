#!/usr/bin/env bash
# Ends with 0 if the person who approves a change, such as by merging it, has no part in it, else with 1 and the reason.
#
#   approver.sh WHO COMMITS PERSON...
#
# WHO approves the change. PERSON: its author, and author and committer of each of its COMMITS commits, `unknown` if the
# platform knows no account. WHO and each PERSON are accounts or e-mail addresses.
set -euo pipefail

who=${1,,} commits=$2
shift 2

if ! [[ $commits =~ ^[0-9]{1,3}$ ]] || ((10#$commits < 1 || 10#$commits > 100)); then
    echo "the change has '$commits' commits, more than are compared, or none: let somebody run \`topicledger runs approve\`" >&2
    exit 1
fi
for person in "$@"; do
    if [[ ${person,,} == "$who" || $person == unknown ]]; then
        echo "$who would approve a change of $person: let somebody else run \`topicledger runs approve\`" >&2
        exit 1
    fi
done
