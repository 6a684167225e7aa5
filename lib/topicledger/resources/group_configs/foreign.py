"""Group configs in files of other tools: none has them."""

from __future__ import annotations

from topicledger.files.foreign.parts import Parts

PARTS = Parts(formats=(), jikkou=None, julie=None, kafka_gitops=None, strimzi=None)
