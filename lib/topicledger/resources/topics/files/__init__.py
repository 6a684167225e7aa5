"""Topics of live clusters as rows of `manifests`, and as files."""
