"""Tests of klog_broker.replication."""
