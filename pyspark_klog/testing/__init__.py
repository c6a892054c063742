"""An embedded broker for tests: ``with testing.Broker(num_partitions=3) as b: ...``.

May import: client, interpreters, errors; starts klog_broker as a child process, never imports it.
Start reading at broker.py; faults.py adds faults to a running broker, plugin.py has the pytest
fixtures klog_broker and klog_topic, and cluster.py starts several brokers with a ZooKeeper server
(zookeeper.py).
"""

from pyspark_klog.testing.broker import Broker, BrokerFailed
from pyspark_klog.testing.cluster import KlogCluster
from pyspark_klog.testing.container import KlogContainer
from pyspark_klog.testing.faults import Fault, FaultFailed, Faults

__all__ = [
    "Broker",
    "BrokerFailed",
    "Fault",
    "FaultFailed",
    "Faults",
    "KlogCluster",
    "KlogContainer",
]
