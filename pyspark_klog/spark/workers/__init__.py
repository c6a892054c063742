"""Parts of every Python process in which Spark runs klog: clients, errors, TCP acknowledgements.

May import: client, records/kernels, log_fallback, errors; of spark: errors.
Start reading at clients.py.
"""
