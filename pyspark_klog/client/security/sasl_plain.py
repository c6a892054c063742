"""SASL PLAIN (RFC 4616): user and password in one message. Pure."""

from pyspark_klog.client.errors import AuthenticationFailed
from pyspark_klog.client.secret import Secret


class Plain:
    """One exchange."""

    name = "PLAIN"

    def __init__(self, username: str, password: Secret) -> None:
        self.who = username
        self._password = password

    def initial(self) -> bytes:
        """The only message: no other identity is asked for, as Kafka's Java client does."""
        return f"\0{self.who}\0{self._password.reveal()}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """The broker answers with nothing when it is content."""
        if challenge:
            raise AuthenticationFailed("it sent a challenge, which PLAIN does not have")
        return None

    def explain(self, text: str) -> str:
        """The broker's words, should they repeat the password, without it."""
        return text.replace(self._password.reveal(), "***") if self._password else text
