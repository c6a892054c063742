"""Errors of settings and authentication, and a function that quotes a peer's text in a message."""

from pyspark_klog.errors import ClientError

LONGEST_TEXT = 300
"""The largest number of characters of a peer's text that go into a message."""


class SettingError(ClientError):
    """A setting is unknown, is missing, conflicts with another setting or the way in which it is
    used, or has an invalid value."""


class AuthenticationFailed(ClientError):
    """The broker, or the token endpoint, did not accept the client's credentials."""


def one_line(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return `text` on one line, with at most `longest` characters and no control characters."""
    # A peer that has not authenticated yet can send text of any content and length.
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * longest])
    return " ".join(shown.split())[:longest]
