"""Tests of pyspark_klog.lake_tables."""
