"""Tests of klog_broker.compaction."""
