"""A Kafka client: connection objects that do no I/O, drivers that send and receive for them over
sockets, and the calls of Kafka's APIs through both.

May import: state_records, security, protocol, records, and base modules such as ids and errors;
never pyspark, never klog_broker.
Start reading at transport/connection.py (the protocol's state), then transport/links.py (sockets)
and cluster/blocking_client.py (calls).
"""

from pyspark_klog.log_fallback import install_fallback_handler

install_fallback_handler()
