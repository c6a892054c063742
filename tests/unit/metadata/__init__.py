"""Tests of klog_broker.metadata."""
