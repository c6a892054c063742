"""Re-exports the ids that an exactly-once sink uses on brokers; only tests import this module."""

from pyspark_klog.client.admin.sinks import SinkId as SinkId
from pyspark_klog.client.admin.sinks import parse as parse
