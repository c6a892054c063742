"""Client quotas: which entities (users, client ids, IP addresses) can have which quotas, and
filters that select entities.

klog stores quotas and does not enforce them yet.

May import: klog_broker.{metadata,config}. The package knows no API and no connection. Start reading
at entities.py.
"""
