"""Tests of klog_broker.faults."""
