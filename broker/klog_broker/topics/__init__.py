"""Topics: plans and makes changes of topics, describes their settings, adopts unknown folders.

May import: klog_broker.{replication,metadata,log,config,runtime}. The package knows no API and no
connection.
Start reading at planning.py, then changes.py.
"""
