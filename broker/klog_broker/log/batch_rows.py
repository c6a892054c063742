"""A batch by its header, as scans give it."""

from typing import NamedTuple


class BatchRow(NamedTuple):
    """A batch by its header; of v0 and v1 messages ``base_offset`` is their only offset."""

    position: int
    size_bytes: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
