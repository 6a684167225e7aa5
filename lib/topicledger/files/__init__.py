"""Manifest files (YAML, JSON, CSV): read into rows and loaded into tables, and written from what clusters have.

The three formats become the same few values first (`values`), which one place checks (`entries`), so that a field means
the same and is refused in the same words wherever it is written. Files of other tools (`foreign`) become the same rows.
"""
