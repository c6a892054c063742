"""The replicas that this broker hosts: who leads, what is in sync, and how far that is.

A room above the metadata and the logs, which do not know each other, and below whoever serves from
a partition (coordinators, handlers).
"""
