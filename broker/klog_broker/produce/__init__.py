"""Pipelined Produce: a turn's requests planned by one kernel call, written, and then committed.

kernel.py plans, planner.py writes and commits, targets.py says which partitions may be planned for,
turns.py collects a turn's connections, loading.py brings the kernel when it is worth it.
May import: everything of klog_broker below app, network and handlers among it, neither of which
imports this.
"""
