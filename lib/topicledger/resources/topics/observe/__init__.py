"""Configs, sizes, moves and users of live topics."""
