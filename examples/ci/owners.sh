#!/usr/bin/env bash
# Prints options of `plan` for each owner whose files differ from commit BASE: --replace-owner, so that their plan shows
# removals, and --owner, so that it has nothing else.
#
#   owners.sh BASE FOLDER
#
# The manifests of an owner are in the folder of its name: FOLDER/OWNER/. Files right in FOLDER, and in FOLDER/unowned/,
# which `export` writes, name no owner: if one of them differs, no --owner is printed. Ends with 1 if a folder's name
# can't be passed on, or if a manifest there has another owner or none (check_owners.py). Needs `topicledger` on the PATH.
set -euo pipefail

base=$1 folder=${2%/}

# Without renames: a file that moves to another owner concerns both.
found=$(git diff --name-only --no-renames -z "$base" HEAD -- "$folder/" | while IFS= read -r -d '' path; do
    owner=${path#"$folder"/}
    if [[ $owner != */* || $owner == unowned/* ]]; then
        printf 'any owner\n'
        continue
    fi
    owner=${owner%%/*}
    if ! [[ $owner =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]]; then
        printf 'the folder %q of %s is no name of an owner: use letters, digits, . _ and -\n' "$owner" "$folder" >&2
        exit 1
    fi
    printf -- '--owner=%s\n--replace-owner=%s\n' "$owner" "$owner"
done | LC_ALL=C sort -u)

# The Python that has the command.
python=$(dirname -- "$(readlink -f -- "$(command -v topicledger)")")/python
git diff --name-only --no-renames -z "$base" HEAD -- "$folder/" | "$python" "$(dirname -- "$0")/check_owners.py" "$folder"

if [[ $found == *'any owner'* ]]; then
    found=$(grep '^--replace-owner=' <<<"$found" || true)
fi
if [[ -n $found ]]; then
    printf '%s\n' "$found"
fi
