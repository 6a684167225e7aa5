#!/usr/bin/env bash
# submit.sh JOBFILE [OPTION...]: spark-submit.sh with driver and executors as Pods of the image, e.g.
#   submit.sh jobs/provision.py --config /etc/topicledger/topicledger.toml --run-id nightly-17 --wait
# Paths are the image's.
#
#   KUBERNETES_MASTER  the API server, e.g. https://127.0.0.1:6443
#   IMAGE              the image that Containerfile makes
#   NAMESPACE          where Pods go (default topicledger): what rbac.yaml was applied to
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

export SPARK_MASTER=k8s://$KUBERNETES_MASTER
options=(--deploy-mode cluster --name topicledger
    --conf "spark.kubernetes.namespace=${NAMESPACE:-topicledger}"
    --conf "spark.kubernetes.container.image=$IMAGE"
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=topicledger
    --conf "spark.kubernetes.driver.podTemplateFile='$here/driver.yaml'"
    --conf "spark.kubernetes.executor.podTemplateFile='$here/executor.yaml'"
    --conf spark.executor.instances=2)
export TOPICLEDGER_SUBMIT_ARGS="${options[*]} ${TOPICLEDGER_SUBMIT_ARGS:-}"
exec "$here/../../spark-submit.sh" "$@"
