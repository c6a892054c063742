"""Sockets, the poller that reports ready sockets, and the kernel that serves many in one call."""
