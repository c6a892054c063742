"""The state of one log that its parts share: segments, flushes, rolling, transactions."""
