"""The producer state of a log: producer epochs, sequence numbers and open transactions."""
