"""Deletion vectors of Delta tables, as the protocol of Delta Lake describes them; delta-rs reads
them and writes none."""

import json
import struct
from pathlib import Path
from typing import Any

_MAGIC = 1_681_511_377
_NO_RUNS = 12_346
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def add_deletion_vector(table: Path, rows: tuple[int, int]) -> None:
    """Commit a version of a table in which two rows of a data file are deleted."""
    log = table / "_delta_log"
    versions = sorted(log.glob("*.json"))
    added = [json.loads(line) for path in versions for line in path.read_text().splitlines()]
    add = next(each["add"] for each in reversed(added) if "add" in each)
    features = ["deletionVectors"]
    protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": features}
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
    actions: list[dict[str, Any]] = [
        {"protocol": protocol},
        {"remove": remove},
        {"add": add | {"deletionVector": _inline_vector(rows)}},
    ]
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{len(versions):020d}.json").write_text(text, encoding="utf-8")


def _inline_vector(rows: tuple[int, int]) -> dict[str, Any]:
    """A vector in the log itself: a roaring bitmap of 64 bits with one container."""
    bitmap = struct.pack("<IIHHI", _NO_RUNS, 1, 0, len(rows) - 1, 16) + struct.pack("<2H", *rows)
    data = struct.pack("<IqI", _MAGIC, 1, 0) + bitmap
    encoded = "".join(_five_digits(data[at : at + 4]) for at in range(0, len(data), 4))
    size = {"sizeInBytes": len(data), "cardinality": len(rows)}
    return {"storageType": "i", "pathOrInlineDv": encoded, **size}


def _five_digits(four_bytes: bytes) -> str:
    number = int.from_bytes(four_bytes, "big")
    return "".join(_Z85[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
