"""Policies: built-in and user-defined rules about actions, as DataFrame transforms.

`contract` defines policies, `evaluating` runs them, and `resources.building` makes them from the run settings. The
built-in ones are in the package of their kind of resource.
"""

from topicledger.policies.contract import Facts, FullSight, Policy, RowRule, Rule, SetRule
from topicledger.policies.evaluating import evaluate, verdicts

# The import of each module registers its policies.
from topicledger.resources.topics.policies import change, create, create_together, delete, moves  # noqa: F401

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
