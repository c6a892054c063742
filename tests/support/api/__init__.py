"""Brokers in memory whose APIs a test calls: requests, responses, stand-ins."""
