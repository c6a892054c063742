"""Sessions with ZooKeeper: their interface, requests as values, and an implementation on kazoo."""
