"""What this process and its machine are called."""

import os
import socket


def host_name() -> str:
    """The machine's own name for itself; no name service is asked."""
    return socket.gethostname()


def process_id() -> int:
    """The number of this process."""
    return os.getpid()
