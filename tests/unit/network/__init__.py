"""Tests of klog_broker.network."""
