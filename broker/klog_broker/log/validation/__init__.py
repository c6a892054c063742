"""Validates and converts batches and records, in plain Python and in compiled kernels."""
