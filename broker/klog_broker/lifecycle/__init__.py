"""Start and end of a broker: opening, refusals, exit codes, workers, shutdown."""
