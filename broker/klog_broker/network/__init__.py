"""Sockets to frames and replies back, in order: listeners, connections, bounded queues.

May import: klog_broker.{log,runtime,config} and pyspark_klog.{protocol,ids,errors}; no handlers,
no produce (plans.py says what the network knows of it).
Start reading at server.py (listeners), then states.py and connection.py (one client's connection),
inbox.py (bytes to requests) and outbox.py (answers to bytes).
"""
