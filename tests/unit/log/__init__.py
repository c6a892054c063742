"""Tests of klog_broker.log."""
