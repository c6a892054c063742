"""What the broker runs on: loop, poller, timers, purgatory, helper threads, clock and files.

May import: pyspark_klog.{ids,errors} and the standard library only; kazoo_carrier.py imports kazoo.
Start reading at loop.py; poller, clock, files and zookeeper are borders that a simulation replaces.
"""
