"""The APIs that a broker serves: one file for each, and the families that bind them to services.

Start reading at families.py; each API's file ends with its ``API``. not_served.py has the APIs and
fields that are not served, with reasons. May import: every package below api in the layers of
docs/architecture.md, but not network.
"""
