"""The group coordinator: the classic rebalance protocol and committed offsets.

May import: coordinator.shard and what that may. Pure are all but state, shards, commits and
coordinator. Start reading at states.py, then machine.py and rebalance.py, then coordinator.py.
"""
