"""What a client is told of an error: a sentence that fits into an answer."""

from pyspark_klog.errors import BrokerError

_MOST_CHARACTERS = 1000


def told(error: BrokerError) -> str:
    """The error's text, cut: it may quote names as long as the longest text of an answer."""
    text = error.text
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
