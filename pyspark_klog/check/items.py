"""One line of the check."""

from enum import Enum
from typing import NamedTuple


class ItemVerdict(Enum):
    """What a line begins with."""

    OK = "ok"
    NOTE = "note"
    """It works, and there is something to know."""
    FAIL = "FAIL"


class Item(NamedTuple):
    """What was found; for a failure also what was expected and what to do."""

    verdict: ItemVerdict
    text: str

    def __str__(self) -> str:
        return f"{self.verdict.value:<5} {self.text}"


def ok(text: str) -> Item:
    """As it should be."""
    return Item(ItemVerdict.OK, text)


def note(text: str) -> Item:
    """Good enough, and worth a word."""
    return Item(ItemVerdict.NOTE, text)


def fail(text: str) -> Item:
    """A job would fail."""
    return Item(ItemVerdict.FAIL, text)
