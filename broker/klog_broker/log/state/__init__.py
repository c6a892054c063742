"""The state of one log, for all classes that work on the log: segments, flushes, rolling,
transactions."""
