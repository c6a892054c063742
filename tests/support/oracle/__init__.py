"""The oracle of the data APIs: generated requests to klog and to Apache Kafka."""
