"""The interface of a fuzzer's target: it makes an input from chance, and checks its effect."""

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar


class BrokenPromise(Exception):
    """The target broke one of its promises on an input."""


class Target(ABC):
    """A target of the fuzzer.

    An input is a string of bytes, and ``check`` takes any string. So each input can be printed as
    hex, written into a test, and made smaller without knowledge of its meaning.
    """

    name: ClassVar[str]
    block: ClassVar[int] = 1_000
    """How many inputs share the state that ``renew`` makes."""
    memory_sample: ClassVar[int] = 64
    """The memory of one in this many inputs is measured: that takes several times as long."""

    def renew(self) -> None:  # noqa: B027  # most have nothing to renew
        """Discard the state that earlier inputs have left."""

    @abstractmethod
    def make(self, random: Random) -> bytes:
        """Make an input, which depends on ``random`` only."""

    @abstractmethod
    def check(self, data: bytes) -> None:
        """Feed the input; each exception is a finding."""

    @abstractmethod
    def most_bytes(self, data: bytes) -> int:
        """How many bytes Python may allocate for this input."""
