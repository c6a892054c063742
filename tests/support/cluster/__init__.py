"""Parts of a cluster in memory, which tests combine, without threads and sockets."""
