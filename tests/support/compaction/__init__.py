"""Logs for the cleaner, its model and its oracle."""
