"""Tests of klog_broker.monitoring and klog_broker.metrics."""
