"""Tests of klog_broker.coordinator.transaction and klog_broker.coordinator_hosting."""
