"""Scripted clients: state machines on the real client's connection, one kind to a file."""
