"""Finds ports for servers that are stopped and started again on the same port."""

import random
import socket
from itertools import islice
from pathlib import Path

HOST = "127.0.0.1"
_LOWEST = 10_000
_OF_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_OF_CONNECTIONS = 32_768
"""Linux's default for the lowest port that outgoing connections get."""


def free_port(host: str = HOST) -> int:
    """Return one port that was free a moment ago, chosen like the ports of `free_ports`."""
    (port,) = free_ports(1, host)
    return port


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Return different ports that were free a moment ago; another program may bind one first.

    The ports are below the range from which the system chooses ports for outgoing connections: a
    connection from ``host`` could take a port of that range while the port's server is stopped. If
    the range begins at 10,000 or below, the ports may be in it.

    :raises OSError: if fewer than ``count`` ports are free
    """
    low = range(_LOWEST, _first_ephemeral_port())
    free = (port for port in random.sample(low, len(low)) if _is_free(host, port))
    found = list(islice(free, count))
    if len(found) < count:
        limits = f"from {low.start} to {low.stop - 1}"
        raise OSError(f"{host} has {len(found)} free ports {limits}, not {count}")
    return found


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _first_ephemeral_port() -> int:
    try:
        first = int(_OF_CONNECTIONS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _FIRST_OF_CONNECTIONS
    return first if first > _LOWEST else _FIRST_OF_CONNECTIONS
