"""Manifest files (YAML, JSON, CSV): read into rows, loaded into tables, and written from the state of clusters.

All three formats are first converted to the same few kinds of values (`manifests.files.values`), which one module
checks (`manifests.files.entries`). So a field has the same meaning and the same errors in every format. Files of other
tools (`foreign`) become the same rows.
"""
