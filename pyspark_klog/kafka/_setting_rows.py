"""The table of all settings of `pyspark_klog.kafka`, with librdkafka's names and Java's."""

from pyspark_klog.kafka._connection_rows import CONNECTION
from pyspark_klog.kafka._consumer_rows import CONSUMING
from pyspark_klog.kafka._producer_rows import PRODUCING
from pyspark_klog.kafka._security_rows import SECURITY
from pyspark_klog.kafka._setting_types import Row

ROWS: tuple[Row, ...] = (*CONNECTION, *PRODUCING, *CONSUMING, *SECURITY)

BY_NAME: dict[str, Row] = {name: row for row in ROWS for name in (row.name, *row.aliases)}
"""The row of each name, aliases included."""

TOPIC_SETTINGS = frozenset(
    {
        *("acks", "request.required.acks", "request.timeout.ms", "delivery.timeout.ms"),
        *("message.timeout.ms", "queuing.strategy", "produce.offset.report", "partitioner"),
        *("compression.type", "compression.codec", "compression.level", "enable.auto.commit"),
        *("auto.commit.enable", "auto.commit.interval.ms", "auto.offset.reset"),
        *("offset.store.method", "offset.store.path", "offset.store.sync.interval.ms"),
        "consume.callback.max.messages",
    }
)
"""The names that may also be written with ``topic.`` before them."""
