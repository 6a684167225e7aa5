"""Read topic files of other tools into the same rows and errors as native manifest files.

There is one module for each format, with a common contract (`contract`); `formats` has the list. A kind of resource
beside topics has its own module `foreign`, which reads its part of these files (`parts`). Unsupported fields are
listed; a field that would have a different meaning in a row is an error with its line.
"""
