"""What a target of the fuzzer is: it makes an input from chance, and says whether it was taken."""

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar


class BrokenPromise(Exception):
    """The target did not do with an input what it promises."""


class Target(ABC):
    """An input is a string of bytes, and ``check`` takes any: so each can be printed as hex,
    written into a test, and made smaller without knowing what it means."""

    name: ClassVar[str]
    block: ClassVar[int] = 1_000
    """So many inputs share what ``renew`` makes."""
    memory_sample: ClassVar[int] = 64
    """The memory of one in so many inputs is measured: that takes several times as long."""

    def renew(self) -> None:  # noqa: B027  # most have nothing to renew
        """Begin anew: what earlier inputs have left behind is gone."""

    @abstractmethod
    def make(self, random: Random) -> bytes:
        """An input. The same chance gives the same input, whatever came before."""

    @abstractmethod
    def check(self, data: bytes) -> None:
        """Feed it. Whatever is raised is a finding."""

    @abstractmethod
    def most_bytes(self, data: bytes) -> int:
        """What Python may allocate at most for this input."""
