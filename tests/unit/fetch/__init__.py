"""Tests of klog_broker.fetch."""
