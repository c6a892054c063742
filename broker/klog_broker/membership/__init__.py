"""A broker's membership in a cluster: the broker registers, serves, and leaves."""
