"""Topics in a plan: `topics` has the goal of a run, and its decisions; `replicas` places replicas."""
