"""Tests of klog_broker.lifecycle."""
