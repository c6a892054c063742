"""One segment: its batches, its indexes, and searches in them."""
