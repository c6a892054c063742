"""Tests of klog_broker.inspection."""
