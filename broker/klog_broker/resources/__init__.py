"""Which topic or partition a request means, and what its principal may do with it."""
