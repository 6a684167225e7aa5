"""Keys of `plans.before` for topics that replace others: Kafka can't rename a topic."""

REPLACES = "replaces"
"""The topic that a created one replaces. Also the column of `manifests`."""
REPLACED_BY = "replaced_by"
"""The topic that replaces a deleted one."""
