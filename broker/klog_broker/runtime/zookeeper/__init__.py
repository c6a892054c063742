"""Sessions with ZooKeeper: their interface, the classes of requests, and an implementation that
uses the client library kazoo."""
