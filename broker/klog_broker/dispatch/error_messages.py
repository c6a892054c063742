"""Error messages for clients: a sentence that fits into a response."""

from pyspark_klog.errors import BrokerError

_MOST_CHARACTERS = 1000


def client_text(error: BrokerError) -> str:
    """The error's text, cut to 1,000 characters, because it may quote very long names."""
    text = error.text
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
