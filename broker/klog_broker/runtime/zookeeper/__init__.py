"""Sessions with ZooKeeper: their interface, requests as values, and kazoo, which carries the
requests."""
