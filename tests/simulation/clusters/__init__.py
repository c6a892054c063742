"""A cluster of whole brokers, ZooKeeper and clients in one thread, all decided by one seed.

Each broker is the real one (klog_broker/app.py) on a machine of its own, with a disk and a clock; a
router lies between the brokers, their clients and the simulated ZooKeeper. Start reading at run.py,
then machines.py and router.py; faults.py has the faults, checks.py and healed.py the promises.

Promised are the checks of a single broker, and: one controller and one leader in an epoch;
replicas that are equal below their high watermarks, and wholly in the end; acknowledged records on
as many replicas as min.insync.replicas; Metadata that shows all partitions of a topic or none; no
log of a deleted topic in the end. The simulation looks for these of Jepsen's anomalies of Kafka:
lost write, unseen, duplicate, inconsistent offsets, poll skip, nonmonotonic poll, nonmonotonic
send, aborted read (G1a), precommitted read.
"""
