"""The blocking client of one cluster: calls with retries, metadata, leaders and coordinators.

May import: client.transport, client.security, protocol. Start reading at blocking_client.py.
"""
