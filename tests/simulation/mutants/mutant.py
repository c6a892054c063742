"""What a mutant is, and how it takes the place of what it replaces."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """``make`` is given what ``owner`` (a class or module) has under ``attribute``, and returns
    what takes its place."""

    name: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within it every broker of this process has the bug."""
        original = self.owner.__dict__[self.attribute]
        setattr(self.owner, self.attribute, self.make(original))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)
