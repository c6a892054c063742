"""Retention, truncation, and the replacement of segments by cleaned ones."""
