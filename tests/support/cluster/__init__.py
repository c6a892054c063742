"""Parts of a cluster in memory, which tests combine. None of them has a thread or a socket."""
