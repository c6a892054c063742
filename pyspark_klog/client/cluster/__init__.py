"""The blocking client of one cluster: calls with retries, metadata, leaders and coordinators.

May import: the lower packages of client (security, transport, settings), protocol, and base modules
such as ids and errors. Start reading at blocking_client.py.
"""
