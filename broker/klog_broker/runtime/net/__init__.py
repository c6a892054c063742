"""Sockets, and the poller that says which of them are ready."""
