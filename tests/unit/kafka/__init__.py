"""Tests of pyspark_klog.kafka."""
