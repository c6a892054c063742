"""ZooKeeper servers and sessions, and the contract of a session."""
