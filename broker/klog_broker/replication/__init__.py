"""The replicas that this broker hosts: their roles, in-sync sets and high watermarks.

May import: metadata, log, config, runtime. Coordinators and handlers import this package, because
they serve clients from its partitions. Start reading at partition.py (the roles of a replica), then
replica_manager.py (the controller's role changes). In a cluster of several brokers,
leader_replicas.py holds the decisions of a leader, and follower_state.py those of a follower.
"""
