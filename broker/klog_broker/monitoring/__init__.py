"""Serves metrics and health over HTTP: reads the broker's counts and renders them, a small part in
each event-loop turn.

Imports the packages that it reads counts from; only app.py imports it. Start reading at server.py.
"""
