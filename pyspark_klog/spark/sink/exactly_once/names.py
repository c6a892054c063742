"""Re-exports the ids of an exactly-once sink on brokers, from client/admin/sink_progress.py."""

from pyspark_klog.client.admin.sink_progress import SinkId as SinkId
from pyspark_klog.client.admin.sink_progress import parse_sink_id as parse_sink_id
