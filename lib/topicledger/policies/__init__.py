"""Policies: built-in and user-defined rules about actions, as DataFrame transforms.

`contract` defines policies; `create`, `delete` and `change` have the built-in ones of topics; `evaluating` runs them.
`resources.building` makes them from the run settings.
"""

# The import of each module registers its policies.
from topicledger.policies import change, create, create_together, delete, moves  # noqa: F401
from topicledger.policies.contract import Facts, FullSight, Policy, RowRule, Rule, SetRule
from topicledger.policies.evaluating import evaluate, verdicts

__all__ = [
    "Facts",
    "FullSight",
    "Policy",
    "RowRule",
    "Rule",
    "SetRule",
    "evaluate",
    "verdicts",
]
