"""Re-exports the ids that an exactly-once sink uses on brokers; only tests import this module."""

from pyspark_klog.client.admin.sink_progress import SinkId as SinkId
from pyspark_klog.client.admin.sink_progress import parse_sink_id as parse_sink_id
