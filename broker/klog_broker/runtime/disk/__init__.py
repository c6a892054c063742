"""Disk access: files (there may be more than file descriptors), mappings, locks, directories."""
