"""What securing a connection can raise. None of it is retried: the next attempt would end alike."""

from pyspark_klog.client.errors import ClientError

LONGEST_TEXT = 300
"""Characters of what the other side says that go into a message."""


class AuthenticationFailed(ClientError):
    """The broker, or the service that gives tokens, did not accept who this client says it is."""


class TlsFailed(ClientError):
    """No TLS with the other side: certificates, names, versions, or no TLS there at all."""


def one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """What the other side says, fit for a message: bounded, and nothing that a terminal obeys."""
    # Before a login nobody is known: the text may come from anyone, and be of any length.
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * longest])
    return " ".join(shown.split())[:longest]
