"""Tests of pyspark_klog.records."""
