"""TLS and SASL without I/O: reads and checks the settings, and implements the SASL mechanisms.

May import: errors. The client imports this package, and the broker can; the package imports
neither. Start reading at config.py.
"""
