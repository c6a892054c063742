"""SASL PLAIN (RFC 4616): user and password in one message. Pure."""

from pyspark_klog.security.errors import AuthenticationFailed
from pyspark_klog.security.secret import Secret


class Plain:
    """One exchange."""

    name = "PLAIN"

    def __init__(self, username: str, password: Secret) -> None:
        self.who = username
        self._password = password

    def initial(self) -> bytes:
        """The only message. The identity to act as is left empty, as in Kafka's Java client."""
        return f"\0{self.who}\0{self._password.reveal()}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """None: a broker that accepts sends an empty message."""
        if challenge:
            raise AuthenticationFailed("it sent a challenge, which PLAIN does not have")
        return None

    def explain(self, text: str) -> str:
        """The broker's words, without the password if they repeat it."""
        return text.replace(self._password.reveal(), "***") if self._password else text
