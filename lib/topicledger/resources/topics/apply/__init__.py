"""Moves while they are applied: cancelling them, throttles left on clusters, and totals for people."""
