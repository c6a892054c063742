"""The commands for transactions."""
