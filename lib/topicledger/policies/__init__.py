"""Policies: rules about actions, ours and the user's own, judged as DataFrame transforms.

`contract` says what a policy is, `create`, `delete` and `change` hold the built-in ones of topics, `judging` asks them.
`resources.building` makes them from the run settings.
"""

# Each registers its policies.
from topicledger.policies import change, create, create_together, delete, moves  # noqa: F401
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
