"""librdkafka as a load generator: its C functions are called from compiled loops.

Importing this module finds librdkafka inside the confluent-kafka wheel.
"""

from typing import Any

from llvmlite import binding

from benchmarks._load.libc import external, now_ns
from benchmarks._load.librdkafka import library_path
from pyspark_klog.records.kernels.jit import Array, kernel, numba

# Load the symbols for kernels that are compiled here, and for those from the cache.
binding.load_library_permanently(str(library_path()))

_types: Any = numba.types
_i32, _i64, _address = _types.int32, _types.int64, _types.intp
_rd_kafka_produce = external(
    "rd_kafka_produce", _i32, _address, _i32, _i32, _address, _i64, _address, _i64, _address
)

_rd_kafka_consume_batch = external(
    "rd_kafka_consume_batch", _i64, _address, _i32, _i32, _address, _i64
)
_rd_kafka_message_destroy = external("rd_kafka_message_destroy", _types.void, _address)
_memcpy = external("memcpy", _address, _address, _address, _i64)

_POLL_MS = 100
# Words (int64) of rd_kafka_message_t; the error is the low half of the first.
_MESSAGE_BYTES = 64
_ERROR_WORD = 0
_LENGTH_WORD = 4
_OFFSET_WORD = 7
_LOW_HALF = 0xFFFF_FFFF

_MSG_F_BLOCK = 0x4  # wait while the queue is full; the payload is neither copied nor freed


@kernel("i64", "i64", "in8", "i64")
def produce_messages(topic: int, partition: int, payload: Array, count: int) -> int:
    """Pass ``count`` messages to librdkafka; return how many it took, fewer if it refused one.

    librdkafka keeps pointing at ``payload``.
    """
    address = payload.ctypes.data
    for done in range(count):
        if _rd_kafka_produce(topic, partition, _MSG_F_BLOCK, address, len(payload), 0, 0, 0) != 0:
            return done
    return count


@kernel("i64", "i64", "in64", "out64", "out64", "out64")
def consume_messages(
    topic: int, partition: int, plan: Array, messages: Array, message: Array, scratch: Array
) -> int:
    """Take messages from offset 0 on; return the end offset, or the offset of the first bad one.

    ``plan`` has the end offset, the size of every message and the deadline in ns; ``messages`` has
    space for the addresses of one call, ``message`` for one message. After the deadline the result
    is the offset of the next message.
    """
    offset = 0
    is_good = True
    while is_good and offset < plan[0]:
        count = _rd_kafka_consume_batch(
            topic, partition, _POLL_MS, messages.ctypes.data, len(messages)
        )
        if count < 0 or (count == 0 and now_ns(scratch) > plan[2]):
            return offset
        for place in range(count):
            _memcpy(message.ctypes.data, messages[place], _MESSAGE_BYTES)
            _rd_kafka_message_destroy(messages[place])
            is_good = (
                is_good
                and message[_ERROR_WORD] & _LOW_HALF == 0
                and message[_LENGTH_WORD] == plan[1]
                and message[_OFFSET_WORD] == offset
            )
            offset += int(is_good)
    return offset
