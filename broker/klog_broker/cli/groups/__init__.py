"""The commands for consumer groups and for the progress of exactly-once sinks."""
