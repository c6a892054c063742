"""Addresses of brokers, in the form of ``bootstrap.servers``."""

from ipaddress import ip_address
from typing import NamedTuple

from pyspark_klog.client.errors import SettingError

_NO_LISTENERS = frozenset({"HTTP", "HTTPS"})
"""Names before ``://`` that are those of web servers also in capitals."""


class Address(NamedTuple):
    """A host's name or address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_addresses(text: str, name: str = "bootstrap.servers") -> list[Address]:
    """Parse ``host:port,[::1]:port,...``: the value of setting ``name`` as addresses, each once.

    A listener's name in capitals before the host (``PLAINTEXT://host:port``) is ignored, as in
    Kafka. Other schemes, such as ``http://``, belong to other servers than a broker.

    :raises SettingError: naming the address that cannot be parsed, or if there is no address
    """
    addresses: list[Address] = []
    for part in (p.strip() for p in text.split(",")):
        if not part:
            continue
        scheme, has_scheme, rest = part.rpartition("://")
        if has_scheme and (not scheme.isupper() or scheme in _NO_LISTENERS):
            raise SettingError(
                f"{name} has {part!r}; expected host:port of a Kafka listener, as in "
                f"localhost:9092, without {scheme}://"
            )
        host, colon, port = rest.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not colon or not host or not (port.isascii() and port.isdigit()):
            raise SettingError(f"{name} has {part!r}; expected host:port, as in localhost:9092")
        if not 0 < int(port) < 65_536:
            raise SettingError(f"{name} has port {port} in {part!r}; expected 1 to 65535")
        address = Address(host, int(port))
        if address not in addresses:
            addresses.append(address)
    if not addresses:
        raise SettingError(f"{name} is empty; expected host:port, as in localhost:9092")
    return addresses


def is_ip_address(host: str) -> bool:
    """Whether ``host`` is an IPv4 or IPv6 address, and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
