#!/usr/bin/env bash
# Prints an option --replace-owner for each owner whose files differ from commit BASE, so that their plan shows removals.
#
#   owners.sh BASE FOLDER
#
# The manifests of an owner are in the folder of its name: FOLDER/OWNER/. Files right in FOLDER name no owner.
# Ends with 1 if a folder's name can't be passed on.
set -euo pipefail

base=$1 folder=${2%/}

# Without renames: a file that moves to another owner concerns both.
git diff --name-only --no-renames -z "$base" HEAD -- "$folder/" | while IFS= read -r -d '' path; do
    owner=${path#"$folder"/}
    [[ $owner == */* ]] || continue
    owner=${owner%%/*}
    if ! [[ $owner =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]]; then
        printf 'the folder %q of %s is no name of an owner: use letters, digits, . _ and -\n' "$owner" "$folder" >&2
        exit 1
    fi
    printf -- '--replace-owner=%s\n' "$owner"
done | sort -u
