"""Start-up and shutdown of a broker: opening logs, refusals, exit codes, worker threads."""
