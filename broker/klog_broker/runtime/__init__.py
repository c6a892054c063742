"""What the broker runs on: loop, poller, timers, purgatory, helper threads, clock and files.

May import: pyspark_klog.{ids,errors} and the standard library only.
Start reading at loop.py; poller, clock and files are the borders that a simulation replaces.
"""
