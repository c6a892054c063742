"""Tests of pyspark_klog.client."""
