"""What a mutant is, how it takes the place of what it replaces, and how it is caught."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


@dataclass(frozen=True)
class Mutant:
    """``make`` is given what ``owner`` (a class or module) has under ``attribute``, and returns
    what takes its place. What two checks keep out needs another one ``also``."""

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]
    also: "Mutant | None" = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it every broker of this process has the bug."""
        original = self.owner.__dict__[self.attribute]
        setattr(self.owner, self.attribute, self.make(original))
        try:
            with self.also.applied() if self.also is not None else nullcontext():
                yield
        finally:
            setattr(self.owner, self.attribute, original)


class Outcome(Protocol):
    """What came of a seed."""

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
    """What came of the first of these seeds that catches it."""
    with mutant.applied():
        outcomes = map(run_seed, seeds)
        return next((each for each in outcomes if each.failure), None)
