"""The controller of a cluster: which broker it is, who leads which partition, who is told what.

May import: replication, security, metadata, log, runtime, config, and klog's shared packages.
Start reading at election.py (the broker that is the controller), fenced_writes.py (the one way in
which it writes to ZooKeeper) and member.py (a broker's whole part in its cluster); then
partition_states.py and replica_states.py (the tables), leader_election.py, context.py (what the
controller knows), order_batch.py and order_queues.py (what it tells brokers).
"""
