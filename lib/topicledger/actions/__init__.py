"""The kinds of actions on topics, and what the actions of all resources have in common."""
