"""KlogError, the one root of what klog raises, and Kafka's error codes."""


class KlogError(Exception):
    """Root of klog's exceptions. The text says what was wrong, what was expected and what to do."""


class InvariantViolation(KlogError):
    """Something that guards data does not hold: a bug or a damaged file, never bad input."""
