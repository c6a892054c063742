"""The host name of the machine and the id of this process."""

import os
import socket


def host_name() -> str:
    """Return the host name that the machine is configured with, without a name look-up."""
    return socket.gethostname()


def process_id() -> int:
    """Return the process id (PID)."""
    return os.getpid()
