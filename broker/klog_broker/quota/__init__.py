"""Quotas of clients: who can have which, and which ones a filter asks for. They do not act yet.

May import: klog_broker.{metadata,config}; knows no API and no connection.
Start reading at entities.py.
"""
