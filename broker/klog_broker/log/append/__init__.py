"""Appends to a log: as the leader, as a follower, and for batches that this broker made itself."""
