"""Connections to brokers: the protocol's state without I/O, and the drivers that move bytes.

May import: client.settings, client.errors, security, protocol. links.py drives blocking sockets,
evented_connection.py runs in a caller's event loop. Start reading at connection.py.
"""
