"""klog's tests. The folders say what a test needs: docs/testing.md is the guide."""
