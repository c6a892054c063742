"""A replicated partition in memory: its log, brokers, faults and mutants."""
