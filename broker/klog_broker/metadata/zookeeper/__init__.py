"""What a broker in a cluster has in ZooKeeper, and what it reads there of the others.

May import: what metadata may, and pyspark_klog.znodes.
Start reading at conversation.py, then joining.py (before the broker knows its number),
registration.py and live_brokers.py (as long as it lives); store.py is the metadata store of it all.
"""
