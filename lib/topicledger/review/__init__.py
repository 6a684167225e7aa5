"""Views for reviewers: a run's plan as a diff, and the history of a topic."""
