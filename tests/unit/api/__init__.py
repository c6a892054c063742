"""Tests of klog_broker.api."""
