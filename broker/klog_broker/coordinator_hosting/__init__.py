"""Starts coordinators for the partitions that this broker leads, and writes transaction markers."""
