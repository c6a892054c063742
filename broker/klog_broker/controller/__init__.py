"""The controller of a cluster: elects leaders, changes ISRs, and sends the results to brokers.

decisions/ is pure and does not depend on where the cluster's metadata is stored; zookeeper/ carries
the decisions out in a cluster over ZooKeeper. May import: metadata, config, runtime, and klog's
shared packages.
"""
