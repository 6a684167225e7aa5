"""Keys of `plans.before` for topics that replace others, since Kafka can't rename a topic, and that no row declares."""

REPLACES = "replaces"
"""The topic that a created one replaces. Also the column of `manifests`."""
REPLACED_BY = "replaced_by"
"""The topic that replaces a deleted one."""
UNDECLARED = "undeclared"
"""The run that created a topic which is deleted because its row was removed."""
