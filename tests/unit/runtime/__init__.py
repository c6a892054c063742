"""Tests of klog_broker.runtime."""
