"""Tests of pyspark_klog.protocol."""
