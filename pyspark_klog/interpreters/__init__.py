"""Finds the Python interpreters that Spark runs, and looks up which packages each of them has.

May import: the standard library. Start reading at lookup.py, which runs probe.py in an interpreter
that Spark would run.
"""
