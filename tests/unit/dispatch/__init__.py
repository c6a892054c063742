"""Tests of klog_broker.dispatch."""
