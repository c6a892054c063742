"""Appends to a log, as leader, as follower, and of the broker's own batches."""
