"""Manages all logs of a broker: loading, creating, deleting, checkpoints and periodic work."""
