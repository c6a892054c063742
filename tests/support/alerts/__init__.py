"""Evaluates Prometheus' alert rules for klog over scraped samples."""
