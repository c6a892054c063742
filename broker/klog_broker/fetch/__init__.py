"""The fetch engine: sessions, reads, down-conversion and the parts of responses."""
