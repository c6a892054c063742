"""The result of one check of `python -m pyspark_klog check`, as the line that is printed."""

from enum import Enum
from typing import NamedTuple


class ItemVerdict(Enum):
    """The result of a check: the word with which the check's line begins."""

    OK = "ok"
    NOTE = "note"
    """The check passed, but its text says something that the user should know."""
    FAIL = "FAIL"


class Item(NamedTuple):
    """The result of a check. The text of a failure usually says what was expected and what to
    do."""

    verdict: ItemVerdict
    text: str

    def __str__(self) -> str:
        return f"{self.verdict.value:<5} {self.text}"


def ok(text: str) -> Item:
    """The line that `python -m pyspark_klog check` prints for a check that passed."""
    return Item(ItemVerdict.OK, text)


def note(text: str) -> Item:
    """The line that `python -m pyspark_klog check` prints for a check that passed, with a text that
    the user should know."""
    return Item(ItemVerdict.NOTE, text)


def fail(text: str) -> Item:
    """A line for a check that failed: a Spark job would probably fail for the same reason."""
    return Item(ItemVerdict.FAIL, text)
