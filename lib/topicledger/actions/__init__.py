"""The kinds of actions. To add one: a module like `create`, its place in `model.Action`, and a row in `KINDS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from topicledger import kafka
from topicledger.actions import create, delete
from topicledger.actions.kind import ActionKind, Verdict
from topicledger.model import Action, Outcome, Target, TopicInfo, TopicResult

KINDS: Mapping[Action, ActionKind] = {kind.action: kind for kind in (delete.KIND, create.KIND)}


def by_kind(targets: Sequence[Target]) -> Iterator[tuple[ActionKind, Sequence[Target]]]:
    """Targets by their kind, in the order of `model.Action`; kinds without targets are left out."""
    for action in Action:
        of_kind = [target for target in targets if target.action is action]
        if of_kind:
            yield KINDS[action], of_kind


def verdict(target: Target, result: TopicResult, info: TopicInfo | None) -> Verdict:
    """How an acknowledged action turned out (C10, C21, M2); skipped where the topic may not be described."""
    if info is not None and not info.permitted:
        message = "this principal may not describe the topic; grant it Describe to have it verified"
        return Outcome.SKIPPED, kafka.TOPIC_AUTHORIZATION_FAILED, None, message
    return KINDS[target.action].verdict(target, result, info)
