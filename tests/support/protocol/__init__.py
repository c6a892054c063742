"""Kafka's definitions of its messages, and samples of all messages."""
