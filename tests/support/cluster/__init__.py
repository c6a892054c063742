"""Parts of a cluster in memory, without threads and sockets. Tests combine these parts."""
