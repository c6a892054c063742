"""Which Pythons Spark runs, and what is in them.

May import: the standard library. Start reading at lookup.py; probe.py runs in the other Python.
"""
