"""TLS and SASL of the client: what settings mean, the exchanges without I/O, and their drivers.

May import: protocol, errors; of client: errors and setting_types, and driver.py also what moves
bytes. Start reading at config.py for the settings, at handshake.py for what goes over the wire.
"""
