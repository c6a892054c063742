"""The names under which an exactly-once sink is known to brokers. Pure."""

from pyspark_klog.client.sinks import SinkId as SinkId
from pyspark_klog.client.sinks import parse as parse
