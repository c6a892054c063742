"""Positions, sizes and attribute bits of the fields in batches (v2) and messages (v0, v1).

All numbers are big-endian. A constant ``*_AT`` is a position from the start of the v2 batch, or of
the v0 or v1 message. Offset, size and magic have the same positions in v0, v1 and v2, so a reader
can distinguish the formats.
"""

from struct import Struct
from typing import TypeAlias

# The types of the buffers that batches, messages and records are read from.
Buffer: TypeAlias = bytes | bytearray | memoryview

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT64 = Struct(">q")

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

MAGIC_V0 = 0
MAGIC_V1 = 1
MAGIC_V2 = 2

# --- v0, v1 and v2: the first fields of a message or batch --------------------------------------
OFFSET_AT = 0  # int64: offset of a message, last offset in a wrapper, base offset of a v2 batch
SIZE_AT = 8  # int32: bytes that follow this field
MAGIC_AT = 16  # int8
LOG_OVERHEAD = Struct(">qi")  # offset, size
LOG_OVERHEAD_BYTES = 12
UP_TO_MAGIC_BYTES = 17
assert LOG_OVERHEAD.size == LOG_OVERHEAD_BYTES

# --- v2: one header for a batch of records ------------------------------------------------------
BATCH_FIELDS: tuple[tuple[str, str], ...] = (
    ("base_offset", "q"),
    ("batch_length", "i"),
    ("partition_leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("last_offset_delta", "i"),
    ("base_timestamp_ms", "q"),
    ("max_timestamp_ms", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("record_count", "i"),
)
BATCH_HEADER = Struct(">" + "".join(code for _, code in BATCH_FIELDS))
BATCH_HEADER_BYTES = 61
assert BATCH_HEADER.size == BATCH_HEADER_BYTES

BASE_OFFSET_AT = 0
BATCH_LENGTH_AT = 8
LEADER_EPOCH_AT = 12
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57
RECORDS_AT = 61
CRC_START_AT = ATTRIBUTES_AT  # the CRC covers from the attributes to the end of the batch

assert tuple(Struct(">" + "".join(c for _, c in BATCH_FIELDS[:i])).size for i in range(14)) == (
    BASE_OFFSET_AT,
    BATCH_LENGTH_AT,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    CRC_AT,
    ATTRIBUTES_AT,
    LAST_OFFSET_DELTA_AT,
    BASE_TIMESTAMP_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT,
    PRODUCER_EPOCH_AT,
    BASE_SEQUENCE_AT,
    RECORD_COUNT_AT,
    RECORDS_AT,
)

# Smallest value of batch_length, and smallest size of one record in a batch: one byte each for the
# length, attributes, timestamp delta, offset delta, key length, value length and header count.
MIN_BATCH_LENGTH = BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES
MIN_RECORD_BYTES = 7

# --- v0 and v1: one header for each message -----------------------------------------------------
MESSAGE_V0 = Struct(">qiIbb")  # offset, size, CRC, magic, attributes; then key and value
MESSAGE_V1 = Struct(">qiIbbq")  # like MESSAGE_V0, with the timestamp after the attributes
assert MESSAGE_V0.size == 18
assert MESSAGE_V1.size == 26
LEGACY_CRC_AT = 12
LEGACY_CRC_START_AT = 16  # the CRC covers from the magic to the end of the message
LEGACY_ATTRIBUTES_AT = 17
LEGACY_TIMESTAMP_AT = 18
LEGACY_KEY_AT = (18, 26)  # in v0, in v1
# Smallest value of the size field in v0 and v1: the sizes of CRC, magic, attributes, timestamp (v1
# only), key length and value length.
MIN_MESSAGE_SIZE = (14, 22)

# --- attribute bits (an int16 in v2, an int8 in v0 and v1) --------------------------------------
CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08  # set: log append time (not in v0)
TRANSACTIONAL_BIT = 0x10  # this bit and the following two exist in v2 only
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

# --- values that mean "none" --------------------------------------------------------------------
NO_TIMESTAMP_MS = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
