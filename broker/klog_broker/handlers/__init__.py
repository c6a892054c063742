"""One file an API: a request and its context in, a response out, now or later.

May import: everything of klog_broker below it (coordinator, metadata, log, runtime), no network.
Start reading at context.py, then dispatcher.py; each api.py ends with its HANDLER row.
"""
