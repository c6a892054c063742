"""The commands that read a data directory without a broker."""
