"""A Kafka client: connections without I/O, their blocking driver, reading, producing, admin.

May import: protocol, records, ids, errors; never pyspark, never klog_broker.
Start reading at connection.py (the protocol's state), then links.py (sockets) and
blocking_client.py (calls).
"""

from pyspark_klog.log_fallback import install

install()
