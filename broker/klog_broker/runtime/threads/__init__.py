"""Helper threads for calls that block, and locks for objects that threads share."""
