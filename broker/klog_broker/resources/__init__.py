"""Resources of requests: finds topics and partitions, and checks what the principal may do."""
