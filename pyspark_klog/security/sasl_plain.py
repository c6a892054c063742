"""The SASL mechanism PLAIN (RFC 4616): user and password in one message. No I/O."""

from pyspark_klog.security.errors import AuthenticationFailed
from pyspark_klog.security.secret import Secret


class Plain:
    """The client's side of one authentication with PLAIN."""

    name = "PLAIN"

    def __init__(self, username: str, password: Secret) -> None:
        self.username = username
        self._password = password

    def initial(self) -> bytes:
        """Return the client's only message.

        The authorization identity is empty, as in Kafka's Java client.
        """
        return f"\0{self.username}\0{self._password.reveal()}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None if ``challenge`` is empty: the broker has accepted the password.

        :raises AuthenticationFailed: if the challenge is not empty
        """
        if challenge:
            raise AuthenticationFailed("the broker sent a challenge, which PLAIN does not have")
        return None

    def explain(self, text: str) -> str:
        """Return the broker's error text, with *** in place of the password."""
        return text.replace(self._password.reveal(), "***") if self._password else text
