"""Cases for the `klog` command that any broker must pass."""
