"""Tests of klog_broker.topics."""
