"""Retention, truncation, and the replacement of cleaned segments."""
