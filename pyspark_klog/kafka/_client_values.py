"""The values for `ClientSettings`, but for those of security."""

from collections.abc import Callable, Mapping
from typing import cast

from pyspark_klog.kafka._producer_rows import ALL_REPLICAS, PARTITIONERS
from pyspark_klog.kafka._setting_rows import BY_NAME, ROWS
from pyspark_klog.kafka._setting_types import INT_MAX
from pyspark_klog.security.setting_rows import SECURITY
from pyspark_klog.security.setting_types import Value

_SECURITY = {row.name for row in SECURITY}
_KIB = 1024
_LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (0, 22)}
"""The smallest and largest level of each kind of compression."""


def client_values(kind: str, values: Mapping[str, object]) -> dict[str, Value]:
    """Return values by Java's names, defaults included: some of librdkafka's defaults differ from
    those of `ClientSettings`. ``values`` are typed, by the names in the table."""

    def number(name: str) -> int:
        return cast("int", values.get(name, BY_NAME[name].default))

    found: dict[str, Value] = {}
    for row in ROWS:
        value = values.get(row.name, row.default)
        if row.client and row.client not in _SECURITY and kind in row.clients and value is not None:
            found[row.client] = cast("Value", value)
    found["connections.max.idle.ms"] = number("connections.max.idle.ms") or -1
    for name in ("receive.buffer.bytes", "send.buffer.bytes"):
        found[name] = number(name) or -1
    refresh = number("topic.metadata.refresh.interval.ms")
    found["metadata.max.age.ms"] = min(
        number("metadata.max.age.ms"), INT_MAX if refresh < 0 else refresh
    )
    if kind == "producer":
        _add_producing(found, values, number)
    if kind == "consumer":
        found["fetch.max.bytes"] = max(number("fetch.max.bytes"), 1)
        found.pop("max.request.size")
    return found


def _add_producing(
    found: dict[str, Value], values: Mapping[str, object], number: Callable[[str], int]
) -> None:
    found["acks"] = "all" if number("acks") == ALL_REPLICAS else str(number("acks"))
    # ClientSettings refuses a time for delivery below that of one request, as Java does. Producer
    # itself keeps to the time for delivery that the program gave.
    found["delivery.timeout.ms"] = max(number("delivery.timeout.ms"), number("request.timeout.ms"))
    buffer_bytes = number("queue.buffering.max.kbytes") * _KIB
    found["buffer.memory"] = min(
        cast("int", values.get("buffer.memory", buffer_bytes)), buffer_bytes
    )
    partitioner = values.get("partitioner")
    if isinstance(partitioner, str) and partitioner not in PARTITIONERS:
        found["partitioner.class"] = partitioner
    kind, level = values.get("compression.type"), number("compression.level")
    if isinstance(kind, str) and kind in _LEVELS and level >= 0:
        low, high = _LEVELS[kind]
        found[f"compression.{kind}.level"] = min(max(level, low), high)
