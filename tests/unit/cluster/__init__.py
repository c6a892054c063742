"""Tests of klog_broker.cluster."""
