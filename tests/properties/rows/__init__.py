"""Spark for random walks: DataFrames of a few rows, in Python, with the functions that the phases of a run use.

Spark takes 0.1 s for a query of ten rows, and a walk has a hundred of them. Here a Column is a Python function of a
row. A missing function raises AttributeError; `tests/properties/test_rows.py` compares the results with Spark's.
"""
