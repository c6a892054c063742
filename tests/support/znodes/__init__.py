"""Znodes of Apache Kafka, and cases for their codecs."""
