"""Golden record files: the cases that other writers than klog write, and the form of a file.

A file is JSON: the writer's name, the bytes in hex, and the records that the writer was to write.
No byte in a golden file comes from klog.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOLDEN_DIR = Path(__file__).parents[2] / "golden" / "records"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP = "CREATE_TIME", "LOG_APPEND_TIME", "NO_TIMESTAMP"
START_MS = 1_357_016_400_000
_LINE = 96

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Expected:
    """A record as a reader must give it."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass
class Golden:
    """One golden file: ``header`` holds fields of the (single) v2 batch that must be read so."""

    name: str
    written_by: str
    codec: str
    data: bytes
    records: list[Expected]
    header: dict[str, int | bool] = field(default_factory=dict)

    def save(self, folder: Path = GOLDEN_DIR) -> None:
        text = self.data.hex()
        content: dict[str, Any] = {
            "written_by": self.written_by,
            "codec": self.codec,
            "header": self.header,
            "records": [
                {
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "timestamp_type": record.timestamp_type,
                    "key": _to_text(record.key),
                    "value": _to_text(record.value),
                    "headers": [[name, _to_text(value)] for name, value in record.headers],
                }
                for record in self.records
            ],
            "bytes": [text[at : at + _LINE] for at in range(0, len(text), _LINE)],
        }
        folder.mkdir(parents=True, exist_ok=True)
        lines = json.dumps(content, ensure_ascii=False, indent=1)
        (folder / f"{self.name}.json").write_text(lines + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Golden":
        content = json.loads(path.read_text(encoding="utf-8"))
        records = [
            Expected(
                item["offset"],
                item["timestamp_ms"],
                item["timestamp_type"],
                _from_text(item["key"]),
                _from_text(item["value"]),
                tuple((name, _from_text(value)) for name, value in item["headers"]),
            )
            for item in content["records"]
        ]
        data = bytes.fromhex("".join(content["bytes"]))
        written_by, codec, header = content["written_by"], content["codec"], content["header"]
        return cls(path.stem, written_by, codec, data, records, header)


def _to_text(data: bytes | None) -> str | None:
    """Hex; ``HEX*N`` for what is one piece N times, so that large values stay small here."""
    if data is None:
        return None
    for size in (1, 16):
        piece = data[:size]
        if len(data) > 64 and piece * (len(data) // size) == data:
            return f"{piece.hex()}*{len(data) // size}"
    return data.hex()


def _from_text(text: str | None) -> bytes | None:
    if text is None:
        return None
    piece, _, times = text.partition("*")
    return bytes.fromhex(piece) * int(times or 1)


# Null, empty and plain keys and values in all pairs that matter; one value worth compressing.
PAIRS: tuple[tuple[bytes | None, bytes | None], ...] = (
    (b"key-0", b"value-0"),
    (None, b"a value without a key"),
    (b"tombstone", None),
    (b"", b""),
    (None, None),
    ("schlüssel".encode(), b"0123456789abcdef" * 20),
)
HEADERS: tuple[Headers, ...] = (
    (),
    (("trace", b"\x00\x01\xff"),),
    (("null", None), ("empty", b""), ("größe", b"12"), ("null", b"again")),
    (),
    (("only", None),),
    (),
)


def sample(magic: int, base_offset: int = 0, timestamp_type: str = CREATE_TIME) -> list[Expected]:
    """The records of most cases, as a reader of the format ``magic`` must give them."""
    return [
        Expected(
            offset=base_offset + index,
            # Not rising: readers must not think that they do.
            timestamp_ms=-1 if magic == 0 else START_MS + (0, 70_000, 5, 5, 2**33, 1)[index],
            timestamp_type=NO_TIMESTAMP if magic == 0 else timestamp_type,
            key=key,
            value=value,
            headers=HEADERS[index] if magic == 2 else (),
        )
        for index, (key, value) in enumerate(PAIRS)
    ]


def large(magic: int) -> list[Expected]:
    """Records that fill several blocks of snappy (32 KiB) and lz4 (64 KiB), in few golden bytes."""
    timestamp_type = NO_TIMESTAMP if magic == 0 else CREATE_TIME
    timestamp_ms = -1 if magic == 0 else START_MS
    return [
        Expected(index, timestamp_ms, timestamp_type, b"k%d" % index, piece * 2500)
        for index, piece in enumerate((b"0123456789abcdef", b"fedcba9876543210") * 2)
    ]
