"""Pipelined Produce: a turn's requests planned by one kernel call, written, and then committed.

kernel.py plans; tables.py writes and reads the kernel's table; planner.py writes and commits what
was planned; targets.py says which partitions may be planned for. turns.py collects a turn's
connections, and has loading.py load the kernel once the load is worth it; idle.py has the kernel
loaded while nobody waits.
pipeline.py appends the Produce requests that no plan takes.
May import: every package below fetch and produce in the layers of docs/architecture.md, and
network.
"""
