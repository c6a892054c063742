"""Makers of the files in tests/golden."""
