"""Resources of requests: finds the topics and partitions that requests name, and checks what the
client's principal may do with them."""
