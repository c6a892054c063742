"""The replicas that this broker hosts: their roles, in-sync sets and high watermarks.

May import: metadata, log, config, runtime. Coordinators and handlers import this room, because they
serve from partitions. Start reading at partition.py (roles), then replica_manager.py (orders).
leader_replicas.py and follower_state.py decide for the two roles once there are several brokers.
"""
