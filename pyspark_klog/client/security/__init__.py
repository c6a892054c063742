"""TLS and SASL of the client's connections, as far as they do I/O: sockets, key stores, tokens.

May import: client.transport, security. Start reading at driver.py.
"""
