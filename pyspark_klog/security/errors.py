"""Errors of settings and authentication, and a function that quotes a server's text in messages.

The server is a broker or a token endpoint.
"""

from pyspark_klog.errors import ClientError

LONGEST_TEXT = 300
"""An error message shows at most this many characters of a text that a broker or token endpoint
sent."""


class SettingError(ClientError):
    """A setting is unknown, is missing, conflicts with another setting or the way in which it is
    used, or has an invalid value."""


class AuthenticationFailed(ClientError):
    """The client is not authenticated: the broker or the token endpoint refused its credentials or
    broke the protocol, or there is no usable token to send."""


def one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return `text` on one line, with at most `longest` characters and no control characters."""
    # The text may come from a server whose identity is not verified yet, so its content and length
    # are not trusted.
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * longest])
    return " ".join(shown.split())[:longest]
