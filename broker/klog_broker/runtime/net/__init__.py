"""Sockets, the poller that reports ready sockets, and the compiled function that receives from or
sends to many sockets."""
