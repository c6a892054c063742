"""Data directories: meta.properties, lock, free disk space, and the partition folders in them."""
