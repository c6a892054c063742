"""Data directories: their owner, lock, free disk space, and the partition folders in them."""
