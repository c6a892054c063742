"""Keeps the results of a command that takes several names if it fails for some of them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyspark_klog.client.errors import SettingError
from pyspark_klog.errors import KlogError


class Failures:
    """The error messages of the names for which a command has failed. The command goes on with its
    other names, prints their results, and then calls `raise_collected`."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._texts)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Note an error that the with block raises, and end the block. An error in the client's
        settings is raised, because every name would fail with it."""
        try:
            yield
        except SettingError:
            raise
        except KlogError as error:
            self.add([error])

    def add(self, errors: Iterable[KlogError]) -> None:
        """Note errors; a message that is noted twice is kept once."""
        self._texts |= dict.fromkeys(map(str, errors))

    def raise_collected(self) -> None:
        """Raise one error with all messages, each on its own line, if there are any.

        :raises KlogError: if the command has failed for one of its names
        """
        if self._texts:
            raise KlogError("\n".join(self._texts))
