"""`klog perf`: how fast a cluster writes and reads records."""
