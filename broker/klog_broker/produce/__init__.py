"""Pipelined Produce: a turn's requests planned by one kernel call, written, and then committed.

kernel.py plans, tables.py is its table, planner.py writes and commits, targets.py says which
partitions may be planned for, turns.py collects a turn's connections and has the kernel loaded when
that is worth it (loading.py), idle.py has it loaded while nobody waits.
May import: everything of klog_broker below app, network and handlers among it, neither of which
imports this.
"""
