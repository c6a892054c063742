"""The parts of the client's TLS and SASL that do I/O: sockets, key stores, tokens.

May import: client.transport, security. Start reading at driver.py.
"""
