"""The identity of a client (Kafka's KafkaPrincipal)."""

from __future__ import annotations

from typing import NamedTuple

USER_TYPE = "User"


class KafkaPrincipal(NamedTuple):
    """The identity of the client of a connection: a type, such as ``User``, and a name."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        """Return ``User:alice``, the form in Kafka's ACLs and logs."""
        return f"{self.principal_type}:{self.name}"


ANONYMOUS = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""The principal of every client on a listener without authentication."""
