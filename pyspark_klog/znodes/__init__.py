"""Paths and values of a cluster's znodes in ZooKeeper, in the format of Kafka 3.9.1.

No code in this package talks to ZooKeeper. Paths are relative to the chroot of `zookeeper.connect`.
Encoders write the same bytes as Kafka: the same fields in the same order, no spaces, and the
entries of a map in the order of the Python dict. Decoders accept the same older versions as Kafka
3.9.1 and skip unknown fields. For other data they raise ZnodeError, which names the znode.

This package may import ids and errors, but never protocol, storage, client or spark.
Start reading at paths.py, then topics.py; data.py has the code that all modules share.
"""
