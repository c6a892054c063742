"""The group coordinator: the classic rebalance protocol and committed offsets.

May import: coordinator.shard and what that may; all but state and coordinator is pure.
Start reading at states.py, then machine.py, then coordinator.py.
"""
