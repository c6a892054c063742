"""Clocks, disks and networks in memory."""
