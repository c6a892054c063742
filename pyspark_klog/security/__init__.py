"""TLS and SASL without I/O: the meaning of settings, and the SASL mechanisms.

May import: errors. Client and broker both import this package; the package imports neither.
"""
