"""Random values for the client: jitter, the choice of a broker or partition, secrets, ids."""

import random


def fraction() -> float:
    """A random number from 0 up to, but not including, 1."""
    return random.random()


def below(limit: int) -> int:
    """A random number from 0 up to, but not including, `limit`, which is above 0."""
    return random.randrange(limit)


def secret_text() -> str:
    """A secret text: 192 random bits as 32 characters (letters, digits, ``-`` and ``_``)."""
    # Imported when SASL or a key store needs it, because the import takes 2.5 ms.
    import secrets

    return secrets.token_urlsafe(24)


def unique_text() -> str:
    """128 bits from the system as 32 hexadecimal digits: unique in every process, even forked."""
    return f"{random.SystemRandom().getrandbits(128):032x}"
