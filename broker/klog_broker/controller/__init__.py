"""The controller of a cluster: it elects leaders, changes in-sync replicas and tells brokers.

decisions/ is pure and knows no kind of cluster; zookeeper/ carries the decisions out in a cluster
over ZooKeeper. May import: metadata, config, runtime, and klog's shared packages.
"""
