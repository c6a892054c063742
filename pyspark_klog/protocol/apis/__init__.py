"""One module an API: its request, its response and their structs, every released version.

May import: pyspark_klog.protocol's fields and message; no API imports another.
Start reading at metadata.py; produce.py and fetch.py also hold hand-written decoders.
"""
