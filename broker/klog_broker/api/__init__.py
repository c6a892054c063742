"""The APIs that a broker serves: one file for each API (the three for ACLs share one), modules that
several APIs share, and families.py, which gives each API its services (the objects of the broker
that its handler uses).

Start reading at families.py; each API's file ends with its BrokerApi objects, such as ``API`` or
``IN_CLUSTER`` (for brokers in a cluster): the handler, and what clients must be allowed to do.
unsupported_apis.py has the APIs that are not served, with reasons. May import: every package below
api in the layers of docs/architecture.md, but not network.
"""
