"""One record as a plain value, the same for every format."""

from enum import IntEnum
from typing import NamedTuple


class TimestampType(IntEnum):
    """Who set a record's timestamp. Format v0 has none."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Header(NamedTuple):
    """A name (UTF-8 on the wire) and a value, which may be null."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """A record at its place in the log. ``timestamp_ms`` is -1 where the format has none."""

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
