"""Tests of pyspark_klog.kafka against real brokers."""
