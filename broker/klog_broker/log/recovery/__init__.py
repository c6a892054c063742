"""Loads a partition's log from the files of its directory, and repairs it after a crash."""
