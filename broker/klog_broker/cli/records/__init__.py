"""The commands that write, print and delete records."""
