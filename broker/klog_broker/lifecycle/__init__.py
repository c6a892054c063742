"""Start-up and shutdown of a broker: opening logs, reasons not to start, exit codes, threads."""
