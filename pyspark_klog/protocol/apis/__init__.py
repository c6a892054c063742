"""One module an API: its request, its response and their structs, every released version.

Of what goes between the brokers and the controller of a cluster there is one version each: that of
Kafka 3.9 at an inter.broker.protocol.version of 3.5 to 3.9.

May import: pyspark_klog.protocol's fields and message; no API imports another.
Start reading at metadata.py; produce.py and fetch.py also hold hand-written decoders.
"""
