"""The replicas that this broker hosts: who leads, what is in sync, and how far that is.

May import: metadata, log, config, runtime; coordinators and handlers, which serve from a partition,
import this room. Start reading at partition.py (the roles), then replica_manager.py (the orders).
"""
