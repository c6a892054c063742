"""Models of brokers, with the real election, registration and controller on simulated ZooKeeper.

A broker here keeps what requests of the controller carry: its roles, its metadata of the cluster,
the replicas on its disk. Brokers die, restart at once, or are suspended. Leaders ask for ISR
changes, sometimes with old knowledge of their followers. `checks.py` follows ZooKeeper's commits
write by write.
"""
