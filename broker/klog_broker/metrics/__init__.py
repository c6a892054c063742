"""Counters that the broker's packages increment: requests, records, ISR changes, cleaning.

monitoring/ reads the counters and renders the metrics. This package imports no other package of the
broker. Start reading at requests.py.
"""
