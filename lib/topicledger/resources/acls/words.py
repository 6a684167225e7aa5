"""Words for ACLs in messages, help texts and advice."""

from __future__ import annotations

from collections.abc import Mapping

from topicledger.naming import DriftName, RefusalName
from topicledger.resources.acls.names import AclDrift, AclRefusal
from topicledger.resources.kind import Words

_OF_ERRORS: Mapping[RefusalName, str] = {
    AclRefusal.INVALID_ACL: "Correct the row of acls: brokers would accept it, but it would never grant anything.",
    AclRefusal.NOT_MANAGED: "Add the principal to `[acls] manage` if its ACLs may be removed.",
    AclRefusal.LAST_CLUSTER_ACL: "Keep an ACL on the cluster itself, such as ALL for an administrator.",
    AclRefusal.OWN_RIGHTS: "Do as the message says.",
    AclRefusal.PRINCIPAL_UNKNOWN: "Set clusters.NAME.principal to the name by which the brokers know this client.",
    AclRefusal.REPLACEMENT_MISSING: "Find out why the ACL that replaces it was not added, then run again.",
    AclRefusal.DENY_MISSING: "Correct the DENY, or declare it absent.",
}

OF_DRIFT: Mapping[DriftName, str] = {
    AclDrift.ACL_MISSING: "Run `provision`: it adds the ACL.",
    AclDrift.ACL_DENIED: "Declare the DENY if it is intended, or declare it absent: it overrides the declared ACL.",
    AclDrift.ACL_UNMANAGED: (
        "Declare the ACL, or run `provision`: if `[acls] manage` names its principal, it removes the ACL, within "
        "guards.max_acl_deletes."
    ),
    AclDrift.ACL_WIDER: "Declare the wider ACL in place of the narrow one, or declare it absent.",
    AclDrift.ACL_ON_MISSING_TOPIC: (
        "Declare the topic, or declare the ACL absent: it would apply to any topic of that name."
    ),
    AclDrift.ACL_PRINCIPAL_WITHOUT_TOPICS: (
        "Check whether the principal is still in use; if not, declare its ACLs absent."
    ),
}
"""What to do about each kind of drift."""

WORDS = Words(
    declared="ACL",
    export_help="Also export the cluster's ACLs.",
    advice=_OF_ERRORS,
    explain_help="Explain an ACL instead of a topic; TEXT is as in the column `resource` of `plans`.",
)
