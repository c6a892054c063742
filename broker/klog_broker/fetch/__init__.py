"""The fetch engine: sessions, reads, down-conversion, and responses in parts."""
