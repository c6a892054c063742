"""The controller of a cluster: which broker it is, who leads which partition, who is told what.

May import: replication, security, metadata, log, runtime, config, and klog's shared packages.
Start reading at election.py (the broker that is the controller), fenced_writes.py (the one way in
which it writes to ZooKeeper) and member.py (a broker's whole part in its cluster). controller.py is
the controller at work: picture.py is what it works on, reading.py and writing.py its way to
ZooKeeper; topic_events.py, deletions.py, alter_partition.py, failed_replicas.py and asking.py are
its events. What becomes of partitions is in settling.py and leader_election.py; partition_states.py
and replica_states.py are the tables, context.py has what it knows, order_batch.py, order_queues.py
and order_sender.py what it tells brokers.
"""
