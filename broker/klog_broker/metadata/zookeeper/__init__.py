"""The metadata store of a broker in a cluster that uses ZooKeeper.

May import: all that klog_broker.metadata may import, and pyspark_klog.znodes.
Start reading at conversation.py, then join_conversation.py (before the broker knows its id),
registration.py and registration_reader.py (while the broker runs). store.py is the metadata store
that uses the others.
"""
