"""Batches and record sets for tests, and cases for the kernels."""
