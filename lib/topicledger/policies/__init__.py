"""Policies: rules about actions on topics, rights and quotas, ours and the user's own, judged as DataFrame transforms.

`contract` says what a policy is, `create`, `delete`, `change`, `acl` and `quota` hold the built-in ones, `judging` asks
them. `resources.building` makes them from the run settings.
"""

# Each registers its policies.
from topicledger.policies import acl, change, create, create_together, delete, moves, quota  # noqa: F401
from topicledger.policies.contract import Facts, FullSight, Policy, RowRule, Rule, SetRule
from topicledger.policies.judging import judge, verdicts

__all__ = [
    "Facts",
    "FullSight",
    "Policy",
    "RowRule",
    "Rule",
    "SetRule",
    "judge",
    "verdicts",
]
