"""A cluster of brokers that are models, with the real election, registration and controller on the
simulated ZooKeeper.

A broker here keeps what it is told: its roles, its picture of the cluster, which replicas are on
its disk. It dies, bounces, stands still; as a leader it asks for in-sync sets, sometimes with what
it knew of a follower a while ago. What ZooKeeper commits is followed write by write (`checks.py`).
"""
