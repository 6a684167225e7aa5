"""Client quotas in files of other tools."""

from __future__ import annotations

from topicledger.files.foreign.parts import JikkouPart, JuliePart, Parts
from topicledger.resources.quotas.foreign import jikkou, julie, strimzi
from topicledger.resources.quotas.foreign.kafka_configs import KAFKA_CONFIGS

PARTS = Parts(
    formats=(KAFKA_CONFIGS,),
    jikkou=JikkouPart(kinds=(jikkou.QUOTA,), lists={jikkou.QUOTA_LIST: jikkou.QUOTA}, read=jikkou.read_quotas),
    julie=JuliePart(descriptor=julie.read_quotas, project=None, topic=None),
    kafka_gitops=None,
    strimzi=strimzi.read_user,
)
