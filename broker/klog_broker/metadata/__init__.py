"""The metadata of the cluster (topics, partitions, settings, brokers, producer ids) and its store.

May import: runtime, config, pyspark_klog.{ids,errors,records.checksums,storage}; no network.
Start reading at interface.py (what a store promises), then image.py (what clients are told) and
role_changes.py (what replicas are told), then local.py with changes.py, election.py and
local_file.py.
"""
