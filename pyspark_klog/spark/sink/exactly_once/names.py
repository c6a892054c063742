"""The names that an exactly-once sink uses on brokers. Pure."""

from pyspark_klog.client.admin.sinks import SinkId as SinkId
from pyspark_klog.client.admin.sinks import parse as parse
