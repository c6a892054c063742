"""Plans and makes changes of topics, describes their settings, and checks a broker's folders at
start-up: missing folders are reported; folders that the metadata does not list are refused, or
their topics are added to the metadata.

May import: klog_broker.{replication,metadata,log,config,runtime}, no module of an API or of
connections.
Start reading at planning.py, then changes.py.
"""
