"""Parity with Spark's own connector: rows, scenarios, results and their page."""
