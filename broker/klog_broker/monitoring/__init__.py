"""Metrics and health over HTTP: what the broker's rooms count, read and rendered between turns.

Imports all rooms that it tells of; nobody but app.py imports it. Begin with server.py.
"""
