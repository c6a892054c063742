"""The network of a broker: listeners, and connections that turn bytes into requests and back.

May import: klog_broker.{log,runtime,config} and pyspark_klog.{protocol,ids,errors}; no handlers,
and not produce, whose interface for the network is in plans.py.
Start reading at server.py (listeners), then connection_states.py and connection.py (one client's
connection), inbox.py (bytes to requests) and outbox.py (responses to bytes).
"""
