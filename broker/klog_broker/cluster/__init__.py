"""Requests from the controller to this broker, and from this broker to the controller."""
