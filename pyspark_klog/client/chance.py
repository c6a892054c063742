"""Chance for the drivers: jitter, where to begin, and secrets that are used once."""

import random


def fraction() -> float:
    """From 0 up to, not including, 1."""
    return random.random()


def below(limit: int) -> int:
    """From 0 up to, not including, `limit`, which is above 0."""
    return random.randrange(limit)


def secret_text() -> str:
    """A text that nobody can guess: 192 bits, as 32 characters of letters, digits, - and _."""
    # Not before SASL or a key store wants it: it takes 2.5 ms to import.
    import secrets

    return secrets.token_urlsafe(24)


def unique_text() -> str:
    """128 bits as 32 hexadecimal digits, from the system: other in every process, forked or not."""
    return f"{random.SystemRandom().getrandbits(128):032x}"
