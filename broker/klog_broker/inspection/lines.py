"""The results of `klog dump-log` and `klog verify`: rows with the contents of a file, and findings
about faults in the file."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

# Characters that could move a terminal's cursor or end a line: C0, DEL, C1, and Unicode's
# separators.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}


class Row(NamedTuple):
    """One item of a file, such as a batch, a record or an index entry. ``text`` is the line that
    Kafka's DumpLogSegments prints for the item, if that tool supports the file; ``fields`` are for
    programs."""

    kind: str
    fields: dict[str, object]
    text: str


class Level(StrEnum):
    """The severity of a finding (a fault in a file, or a remark about the file)."""

    ERROR = "error"
    """Damage: data that was written is lost, or read wrongly."""
    RECOVERABLE = "recoverable"
    """The trace of a crash, a deletion or a running broker's last writes. A broker repairs or
    removes it, and loses no record thereby that was synced to disk and not deleted."""
    NOTE = "note"
    """Information that is not a fault in itself."""


class Finding(NamedTuple):
    """A fault in a file, or a remark about the file, in one sentence."""

    level: Level
    path: Path
    text: str
    position: int | None = None
    """The position in the file, if the finding has one."""

    @property
    def line(self) -> str:
        """The finding as a line for people."""
        place = "" if self.position is None else f", byte {self.position}"
        return printable(f"{self.level}: {self.path}{place}: {self.text}")

    @property
    def fields(self) -> dict[str, object]:
        """The finding as fields for programs."""
        return {
            "level": str(self.level),
            "file": str(self.path),
            "position": self.position,
            "text": self.text,
        }


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that it stays on one line. File names
    that are not valid UTF-8 are escaped, too."""
    return text.translate(_CONTROLS).encode(errors="backslashreplace").decode()
