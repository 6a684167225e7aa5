#!/usr/bin/env bash
# test_versions.sh VERSION...: runs the tests of requests to brokers against each version of Kafka, which is fetched into
# build/jars/kafka-VERSION. If one version fails, the others still run, and the exit code is 1.
#
#   TOPICLEDGER_TESTS  arguments for pytest instead of these tests
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# Requests and their answers, rules of creates and deletes, changes, ACLs, and topics that a principal can't see.
tests=(tests/broker/test_requests.py tests/broker/test_provisioning.py tests/broker/test_changes.py
    tests/broker/test_acls.py tests/broker/test_hidden_topics.py -m 'not thorough')
if [[ -n ${TOPICLEDGER_TESTS:-} ]]; then
    read -ra tests <<<"$TOPICLEDGER_TESTS"
fi

code=0
for version; do
    .venv/bin/python scripts/fetch_jars.py "kafka-$version" || exit
    printf 'Kafka %s\n' "$version"
    TOPICLEDGER_KAFKA_JARS=$PWD/build/jars/kafka-$version .venv/bin/python -m pytest -q "${tests[@]}" || code=1
done
exit "$code"
