"""A broker's membership in a cluster: it registers, takes its part, and leaves."""
