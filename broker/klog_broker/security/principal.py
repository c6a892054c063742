"""A client as the broker knows it (Kafka's KafkaPrincipal)."""

from __future__ import annotations

from typing import NamedTuple

USER_TYPE = "User"


class KafkaPrincipal(NamedTuple):
    """Who is on the other side of a connection."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        """As Kafka writes it in ACLs and logs: ``User:alice``."""
        return f"{self.principal_type}:{self.name}"


ANONYMOUS = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""Whoever has not said who it is: every client of a listener without authentication."""
