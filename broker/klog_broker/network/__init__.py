"""The network of a broker: listeners, and connections that receive requests and send responses.

May import: klog_broker.{security,log,config,runtime,metrics} and
pyspark_klog.{protocol,ids,errors}. May not import handlers or klog_broker.produce; plans.py has the
interface through which the network offers Produce requests to klog_broker.produce. Start reading at
server.py (listeners), then connection_states.py and connection.py (one client's connection),
inbox.py (received bytes to requests) and outbox.py (responses to sent bytes).
"""
