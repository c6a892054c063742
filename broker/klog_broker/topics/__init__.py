"""Topics: changes of them planned and made, their settings as they are told, folders taken in.

May import: klog_broker.{replication,metadata,log,config,runtime}; knows no API, no connection.
Start reading at planning.py, then changing.py.
"""
