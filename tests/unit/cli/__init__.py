"""Tests of klog_broker.cli."""
