"""Reads from a log by offset and by timestamp."""
