"""Tests of klog_broker.controller."""
