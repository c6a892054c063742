"""Dispatch of requests: from a request's frame to its handler, and from the response to bytes."""
