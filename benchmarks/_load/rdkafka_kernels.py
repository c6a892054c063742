"""librdkafka as a load generator: its C function is called from a compiled loop.

Importing this module finds librdkafka inside the confluent-kafka wheel.
"""

from typing import Any

from llvmlite import binding

from benchmarks._load.libc import external
from benchmarks._load.librdkafka import library_path
from pyspark_klog.records.kernels.jit import Array, kernel, numba

# Load the symbols for kernels that are compiled here, and for those from the cache.
binding.load_library_permanently(str(library_path()))

_types: Any = numba.types
_i32, _i64, _address = _types.int32, _types.int64, _types.intp
_rd_kafka_produce = external(
    "rd_kafka_produce", _i32, _address, _i32, _i32, _address, _i64, _address, _i64, _address
)

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
