"""Chance as a parameter: every id that is made up and every jitter comes from here."""

from random import Random, SystemRandom

from pyspark_klog.ids import UUID


class Chance:
    """The system's chance; with a seed the same sequence each time, for tests and the simulation.

    Any thread may ask. A replay needs an order of the questions: ask in the loop where it can be.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = SystemRandom() if seed is None else Random(seed)

    def uuid(self) -> UUID:
        """A random UUID (version 4)."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def below(self, limit: int) -> int:
        """From 0 up to, not including, `limit`; 0 for a limit of 0 or less."""
        return self._random.randrange(limit) if limit > 0 else 0
