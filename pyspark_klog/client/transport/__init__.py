"""Connections to brokers: the protocol's state without I/O, and two drivers that move the bytes.

May import: client.settings, client.errors, security, protocol. The blocking driver is links.py, the
evented driver, which runs in a caller's event loop, is evented_connection.py. Start reading at
connection.py.
"""
