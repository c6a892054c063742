"""Serves Fetch: fetch sessions, reads of partitions, down-conversion, encoding of responses."""
