"""Differences between topics and their manifests."""
