"""What an inspection says: rows of what a file holds, and findings of what does not fit in it."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

# What could move a terminal's cursor or end a line: C0, DEL, C1, and Unicode's separators.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}


class Row(NamedTuple):
    """One thing that a file holds. ``text`` is the line that Kafka's DumpLogSegments prints for it,
    where that tool knows the file; ``fields`` are for machines."""

    kind: str
    fields: dict[str, object]
    text: str


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Damage: what was written is not there any more, or is answered wrongly."""
    RECOVERABLE = "recoverable"
    """What a crash may leave: a broker mends it when it starts, and loses nothing that it had
    promised to keep."""
    NOTE = "note"
    """Nothing is wrong with it; it is said so that nobody wonders."""


class Finding(NamedTuple):
    """A sentence about one place of one file."""

    level: Level
    path: Path
    text: str
    position: int | None = None
    """The byte in the file, where there is one."""

    @property
    def line(self) -> str:
        """As people read it."""
        place = "" if self.position is None else f", byte {self.position}"
        return printable(f"{self.level}: {self.path}{place}: {self.text}")

    @property
    def fields(self) -> dict[str, object]:
        """As machines read it."""
        return {
            "level": str(self.level),
            "file": str(self.path),
            "position": self.position,
            "text": self.text,
        }


def printable(text: str) -> str:
    """The text with control characters written out, so that it stays one line; a name of bytes
    that are no UTF-8 can be written, too."""
    return text.translate(_CONTROLS).encode(errors="backslashreplace").decode()
