"""What a Kafka client or a Spark executor needs: records, protocol, client and the Spark source.

May import: the standard library here; never klog_broker. Names are loaded when first used.
Start reading at records/FORMAT.md, then docs/architecture.md.
"""

from pyspark_klog._version import __version__ as __version__
