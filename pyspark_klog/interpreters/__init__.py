"""Finds the Pythons that Spark runs, and asks them for their packages.

May import: the standard library. Start reading at lookup.py; probe.py runs in the other Python.
"""
