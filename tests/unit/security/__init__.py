"""Tests of pyspark_klog.security and pyspark_klog.client.security."""
