"""Helpers of the tests of metrics, health and alerts."""
