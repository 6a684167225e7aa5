"""The kinds of resources: one package per kind, and what kinds have in common."""
