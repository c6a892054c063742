"""Tests of klog_broker.config."""
