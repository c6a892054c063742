"""Coordinators of consumer groups and of transactions.

Each partition of their state topics (__consumer_offsets, __transaction_state) is one shard.

May import: replication, security, metadata, log, runtime, config, and klog's shared packages.
Start reading at shard.py (decide, append, apply), then runtime.py, then group/coordinator.py and
group/classic/group_machine.py, and transaction/coordinator.py. The group coordinator and the
transaction coordinator do not import each other: api/, coordinator_hosting/ and parts.py connect
the two.
"""
