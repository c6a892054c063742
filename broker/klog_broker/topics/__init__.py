"""Plans and makes changes of topics, describes their settings, and checks a broker's partition
folders at start-up.

A standalone broker does not start while a partition's folder is missing, or while there is a folder
that the metadata does not list. Options of the start-up accept missing folders (--accept-missing),
or add the topics of unlisted folders to the metadata (--adopt).

May import: klog_broker.{controller,replication,metadata,log,config,runtime}, no module of an API or
of connections. Start reading at planning.py, then changes.py.
"""
