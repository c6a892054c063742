"""Principals (the identities of clients), and the operations and resource types of access control.

Authentication will be part of this package, too. May import: runtime, config and pyspark_klog. The
packages that serve requests import this one, such as network/, dispatch/ and api/.
"""
