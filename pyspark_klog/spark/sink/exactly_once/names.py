"""The names under which an exactly-once sink is known to brokers. Pure."""

from pyspark_klog.client.admin.sinks import SinkId as SinkId
from pyspark_klog.client.admin.sinks import parse as parse
