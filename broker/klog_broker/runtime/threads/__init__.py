"""Helper threads for calls that block."""
