"""Logs, clients and readers for tests of groups and transactions."""
