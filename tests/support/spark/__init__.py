"""Spark sessions, sinks, checkpoints and workers for tests."""
