"""Topics: plans and makes changes of topics, describes their settings, takes unknown folders in.

May import: klog_broker.{replication,metadata,log,config,runtime}; knows no API and no connection.
Start reading at planning.py, then changing.py.
"""
