"""State that lives in a log: consumer groups and transactions, one shard a partition.

May import: replication, security, metadata, log, runtime, config, and klog's shared packages.
Start reading at shard.py (decide, append, apply), then runtime.py, then group/coordinator.py and
group/classic/group_machine.py, and transaction/coordinator.py. The two coordinators do not know
each other: handlers and app.py join them.
"""
