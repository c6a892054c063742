"""One module per API: the request, the response and their structs, in all released versions.

APIs between the brokers and the controller of a cluster have one version each: the version of
Kafka 3.9 at an inter.broker.protocol.version of 3.5 to 3.9.

Modules may import pyspark_klog.protocol's other modules, pyspark_klog.ids and pyspark_klog.errors;
no module of an API imports another API's module.
Start reading at metadata.py; produce.py and fetch.py also have hand-written codecs.
"""
