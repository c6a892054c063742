"""TLS and SASL without I/O: the meaning of settings, and the SASL mechanisms.

May import: errors. The client imports this package, and the broker can; the package imports
neither. Start reading at config.py.
"""
