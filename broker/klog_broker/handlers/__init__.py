"""One file an API: a request and its context in, a response out, now or later.

May import: every room of klog_broker below this one (topics, coordinator, log, ...); not network.
Start reading at context.py, then dispatcher.py; each api.py ends with its HANDLER row.
"""
