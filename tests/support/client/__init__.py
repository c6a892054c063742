"""Brokers and worlds in memory for tests of the client, and cases that any broker must pass."""
