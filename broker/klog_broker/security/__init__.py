"""Principals: the identities of the broker's clients. Authentication will have its place here, too.

May import: runtime, config and pyspark_klog. The packages network/ and dispatch/ import this one.
"""
