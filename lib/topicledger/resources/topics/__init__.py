"""Topics: the kind of resource that all other kinds are compared with.

Its packages are named after the room that each belongs to (CONTRIBUTING.md). Its rows are in `manifests`, its
observation, which tells of clusters, too, in `observe.topics`.
"""
