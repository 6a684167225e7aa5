#!/usr/bin/env bash
# The demo: its own broker, example manifests, and two provisioning runs, of which the second has only a failure left.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

folder=build/demo
tables=data/demo
settings=$folder/demo.toml
broker=

stop_broker() {
    if [[ -n $broker ]]; then
        kill -TERM "$broker" 2>/dev/null || true
        wait "$broker" 2>/dev/null || true
    fi
}
trap stop_broker EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() {
    printf '\n== %s\n' "$*"
}

run() {
    printf '$ ./spark-submit.sh %s\n\n' "$*"
    ./spark-submit.sh "$@"
}

# Exit code 4 means that some topics failed. Here, exactly one must fail.
run_with_one_bad_topic() {
    local code=0
    run "$@" || code=$?
    if ((code != 4)); then
        printf 'demo: expected exit code 4 for the one topic that Kafka refuses, got %s\n' "$code" >&2
        exit 1
    fi
    printf '\nExit code 4 is intended: payments.ledger asks for three replicas on a cluster with one broker, and only this topic failed.\n'
}

rm -rf -- "$folder" "$tables"
mkdir -p -- "$folder"

say "Starting a Kafka broker"
mkfifo "$folder/address"
.venv/bin/python -m topicledger_testing.embedded_kafka --jars build/jars/kafka >"$folder/address" 2>"$folder/broker.log" &
broker=$!
read -r address <"$folder/address" || {
    cat "$folder/broker.log" >&2
    exit 1
}
printf 'It listens on %s and stops when the demo ends.\n' "$address"
sed "s/localhost:9092/$address/" examples/demo.toml >"$settings"

# Something for `state: absent` to remove.
.venv/bin/python - "$address" <<'PYTHON'
import sys

from kafka import KafkaAdminClient

admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
admin.create_topics(["payments.legacy"], wait_for_metadata=True)
admin.close()
PYTHON

say "Loading the manifests of examples/manifests into Delta"
run jobs/load_manifests.py --config "$settings" examples/manifests

say "Provisioning: one existing topic will be deleted, the others will be created"
run_with_one_bad_topic jobs/provision.py --config "$settings" --run-id demo-1

say "Provisioning again: only the topic that can't be created is left"
run_with_one_bad_topic jobs/provision.py --config "$settings" --run-id demo-2

say "Both runs, from the ledger"
run jobs/runs.py list --config "$settings"

say "Every action of the first run"
run jobs/runs.py show --config "$settings" demo-1

say "Done"
printf 'The Delta tables stay in %s, so that you can look at them:\n' "$tables"
printf '    %s\n' "$tables"/*/
printf 'For example, with .venv/bin/python:\n'
printf '    import deltalake\n    deltalake.DeltaTable("%s/audit").to_pyarrow_table()\n' "$tables"
