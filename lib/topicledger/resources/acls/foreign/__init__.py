"""ACLs in files of other tools."""

from __future__ import annotations

from topicledger.files.foreign.parts import GitopsPart, JikkouPart, JuliePart, Parts
from topicledger.resources.acls.foreign import jikkou, julie, kafka_gitops, strimzi
from topicledger.resources.acls.foreign.kafka_acls import KAFKA_ACLS

PARTS = Parts(
    formats=(KAFKA_ACLS,),
    jikkou=JikkouPart(kinds=(jikkou.AUTHORIZATION, jikkou.ROLE), lists={}, read=jikkou.read_rights),
    julie=JuliePart(
        descriptor=None,
        project=julie.read_project,
        topic=julie.read_topic,
        follows=(julie.CREATE,),
        lists=julie.unfollowed,
    ),
    kafka_gitops=GitopsPart(beside=kafka_gitops.beside, read=kafka_gitops.read_rights),
    strimzi=strimzi.read_user,
)
