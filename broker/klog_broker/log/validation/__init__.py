"""Checks of batches and records, in Python and in compiled kernels."""
