"""Jikkou's KafkaPrincipalAuthorization resources, with the KafkaPrincipalRole resources that they name.

According to Jikkou's reference of these resources (https://www.jikkou.io/docs/, "Kafka Authorizations"), the principal
is `metadata.name`. It has its own ACLs and those of its roles, which may be in any file that is loaded together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from topicledger.files.foreign.contract import unknown_principal
from topicledger.files.foreign.fields import Fields
from topicledger.files.foreign.resources import Resource, annotations_of
from topicledger.files.yaml_files import measured
from topicledger.manifests.files.entries import Reader
from topicledger.manifests.files.values import Object, describe
from topicledger.resources.acls.foreign.rows import acls_of, add_right
from topicledger.text import nearest, show

AUTHORIZATION, ROLE = "KafkaPrincipalAuthorization", "KafkaPrincipalRole"
_DELETE, _IGNORE = "jikkou.io/delete", "jikkou.io/ignore"
_MATCH = "MATCH"

_Rule = tuple[Object, int, Reader]


def read_rights(resources: Sequence[Resource], cluster: str | None) -> None:
    """Report the rows of all authorizations."""
    roles: dict[str, Sequence[_Rule]] = {}
    for each in resources:
        if each.kind == ROLE:
            name = each.metadata.text("name", required=True)
            spec = _spec(each)
            rules = list(_rules(spec, each.reader)) if spec is not None else []
            if name is not None and roles.setdefault(name, rules) is not rules:
                each.metadata.error("name", each.line, f"is {show(name)}, as is another role's; keep one of them")
    for each in resources:
        if each.kind == AUTHORIZATION:
            with measured(each.reader.report):
                _authorization(each, cluster, roles)


def _spec(resource: Resource) -> Fields | None:
    spec = resource.fields.mapping("spec")
    resource.fields.leave_out(("status", "template"), "the state that Jikkou last saw, or a template")
    resource.fields.rest()
    return spec


def _rules(spec: Fields, reader: Reader) -> Iterator[_Rule]:
    for value, line in spec.items("acls"):
        if isinstance(value, Object):
            yield value, line, reader
        else:
            reader.report.error(line, f"each of `acls` must be a mapping, not {describe(value)}")


def _authorization(resource: Resource, cluster: str | None, roles: Mapping[str, Sequence[_Rule]]) -> None:
    metadata, report = resource.metadata, resource.reader.report
    errors = report.errors
    principal = metadata.text("name", required=True)
    labels = metadata.texts("labels") or {}
    annotations = annotations_of(metadata, (_DELETE, _IGNORE))
    metadata.rest()
    spec = _spec(resource)
    if annotations.get(_IGNORE):
        report.skip(f"{AUTHORIZATION} with {_IGNORE}: true")
        return
    if spec is None:
        report.skip(f"{AUTHORIZATION} without ACLs")
        return
    if principal is None:
        return
    rules = list(_rules(spec, resource.reader))
    if annotations.get(_DELETE) and not rules:
        what = "deletes all of its ACLs; declare these ACLs `absent`, or add the principal to `[acls] manage`"
        report.leave_out(resource.line, f"metadata.annotations.{_DELETE}", what)
    for role, line in spec.items("roles"):
        if not isinstance(role, str):
            spec.error("roles", line, f"must be a list of names, not {describe(role)}")
        elif role in roles:
            resource.reader.visit(len(roles[role]))
            rules += roles[role]
        else:
            found = f"{show(role)}, which no file here has; {nearest(role, roles) or 'load its file, too'}"
            spec.error("roles", line, f"names the role {found}")
    spec.rest()
    if not principal.startswith("User:"):
        report.leave_out(resource.line, "metadata.name", unknown_principal(principal))
        return
    rights = [
        (acl, line, reader.report)
        for value, line, reader in rules
        for acl, line in acls_of(Fields(value, "spec.acls", reader, line), principal, name="pattern")
    ]
    if report.errors == errors:
        state = "absent" if annotations.get(_DELETE) else "present"
        for acl, line, where in rights:
            if acl.pattern_type == _MATCH:
                what = f"matches names by {show(acl.resource_name)}, when Jikkou runs: write the names instead"
                where.leave_out(line, "spec.acls.resource.pattern", what)
            else:
                add_right(where, cluster, acl, line, labels.get("owner"), state=state)
