"""Gives the group and transaction coordinators the partitions of their state topics that this
broker leads; writes transaction markers to the partitions that this broker leads."""
