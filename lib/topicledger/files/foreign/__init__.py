"""Read topic files of other tools into the same rows and errors as native manifest files.

There is one module for each format, with a common contract (`contract`). Unsupported fields are listed; a field that
would have a different meaning in a row is an error with its line.
"""

from collections.abc import Mapping

from topicledger.files.foreign.contract import ForeignFormat
from topicledger.files.foreign.jikkou import JIKKOU
from topicledger.files.foreign.julie import JULIE
from topicledger.files.foreign.kafka_acls import KAFKA_ACLS
from topicledger.files.foreign.kafka_gitops import KAFKA_GITOPS
from topicledger.files.foreign.kafka_quotas import KAFKA_QUOTAS
from topicledger.files.foreign.kafka_topics import KAFKA_TOPICS
from topicledger.files.foreign.strimzi import STRIMZI
from topicledger.files.foreign.topicctl import TOPICCTL

FOREIGN_FORMATS: Mapping[str, ForeignFormat] = {
    form.name: form for form in (STRIMZI, TOPICCTL, JIKKOU, KAFKA_GITOPS, JULIE, KAFKA_TOPICS, KAFKA_ACLS, KAFKA_QUOTAS)
}
"""Formats by name, for the option `--from`."""

__all__ = ["FOREIGN_FORMATS", "ForeignFormat"]
