"""Reads of a log, by offset and by timestamp. Reads never change the log."""
