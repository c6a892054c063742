"""An embedded broker for tests: ``with testing.Broker(num_partitions=3) as b: ...``.

May import: client, interpreters, errors; starts klog_broker as a child process, never imports it.
Start reading at broker.py; plugin.py has the pytest fixtures klog_broker and klog_topic, and
zookeeper.py a ZooKeeper server, for brokers of a cluster.
"""

from pyspark_klog.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
