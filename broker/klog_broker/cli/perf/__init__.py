"""`klog perf`: measures how fast a cluster writes and reads records."""
