"""A mutant: how it replaces a part of the broker, and how a seed catches it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


@dataclass(frozen=True)
class Mutant:
    """``make`` gets ``owner``'s (a class's or module's) ``attribute`` and returns its replacement.

    A bug that two checks of the broker prevent needs a second mutant, in ``also``.
    """

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]
    also: "Mutant | None" = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While the context lasts, every broker of this process has the bug."""
        original = self.owner.__dict__[self.attribute]
        setattr(self.owner, self.attribute, self.make(original))
        try:
            with self.also.applied() if self.also is not None else nullcontext():
                yield
        finally:
            setattr(self.owner, self.attribute, original)


class Outcome(Protocol):
    """The outcome of a seed: ``failure`` is empty if all promises were kept."""

    @property
    def seed(self) -> int: ...
    @property
    def check(self) -> str: ...
    @property
    def failure(self) -> str: ...
    @property
    def lines(self) -> list[str]: ...


O = TypeVar("O", bound=Outcome)  # noqa: E741


def catch(mutant: Mutant, run_seed: Callable[[int], O], seeds: Iterable[int]) -> O | None:
    """The outcome of the first of these seeds that catches the mutant; None if none does."""
    with mutant.applied():
        outcomes = map(run_seed, seeds)
        return next((each for each in outcomes if each.failure), None)
