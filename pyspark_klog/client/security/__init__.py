"""TLS and SASL of the client: what settings mean, the mechanisms without I/O, and their drivers.

May import: protocol, errors; of client: errors, secret, setting_types and handshake, and driver.py
also sockets and connections. Start reading at config.py for the settings; the messages of an
authentication are in client/handshake.py, since every connection knows them.
"""
