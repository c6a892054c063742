"""The controller of a cluster: who leads which partition, and who is told what.

May import: replication, security, metadata, log, runtime, config, and klog's shared packages.
Start reading at partition_states.py and replica_states.py (the tables), then leader_election.py,
context.py (what the controller knows), order_batch.py and order_queues.py (what it tells brokers).
"""
