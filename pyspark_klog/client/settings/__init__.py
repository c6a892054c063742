"""The client's settings: Kafka's names with klog's defaults, checked and typed.

May import: client.errors, security. Start reading at client_settings.py.
"""
