"""Random numbers: the source of every generated id and every jitter. Code that needs random numbers
gets a Chance as a parameter, so that a test can pass a seeded one."""

from random import Random, SystemRandom

from pyspark_klog.ids import UUID


class Chance:
    """A random number generator: the operating system's, or a seeded one for tests and simulations.

    Every thread may call a method. A seed gives the same simulation again only if the calls come in
    the same order, so call from the loop's thread where possible.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = SystemRandom() if seed is None else Random(seed)

    def uuid(self) -> UUID:
        """Return a random UUID (version 4)."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def below(self, limit: int) -> int:
        """Return a random integer from 0 to `limit` - 1; 0 for a limit of 0 or less."""
        return self._random.randrange(limit) if limit > 0 else 0
