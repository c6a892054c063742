"""Tests of pyspark_klog.spark."""
