"""Tests of klog_broker.produce."""
