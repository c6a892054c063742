"""Segments of a log: their files and indexes, and searches for batches in a segment."""
