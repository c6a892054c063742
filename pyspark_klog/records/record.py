"""Record, Header and TimestampType: one record as a plain value, whatever format stored it."""

from enum import IntEnum
from typing import NamedTuple


class TimestampType(IntEnum):
    """Whether the producer or the broker set a record's timestamp; format v0 has no timestamps."""

    NO_TIMESTAMP = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Header(NamedTuple):
    """A record header: a name (UTF-8 on the wire) and a value, which may be null."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """A record with its absolute offset; ``timestamp_ms`` is -1 if the record has no timestamp."""

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
