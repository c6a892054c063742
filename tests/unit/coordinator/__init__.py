"""Tests of klog_broker.coordinator."""
