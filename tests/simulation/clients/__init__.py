"""Scripted clients: state machines on the real client's connection, one kind of client to
a file."""
