"""Sockets, the poller that reports ready sockets, and the kernel that receives from or sends to
many sockets in one call."""
