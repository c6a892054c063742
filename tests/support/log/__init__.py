"""Helpers of the log's tests."""
