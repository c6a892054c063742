"""The state that the parts of one log share: segments, flushes, rolling, transactions."""
