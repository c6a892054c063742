"""The commands for topics, settings, quotas and log directories."""
