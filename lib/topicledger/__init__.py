"""Kafka topics for a whole estate: declared in Delta, decided by Spark, done by Kafka, remembered in Delta."""

__version__ = "0.1.0"
