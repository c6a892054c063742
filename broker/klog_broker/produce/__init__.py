"""Pipelined Produce: one kernel call plans an event-loop turn, then the plan is written and
committed.

kernel.py makes the plan; tables.py writes and reads the kernel's table; planner.py writes and
commits the plan; targets.py finds the partitions that may be in a plan. turn_plans.py collects a
turn's connections, and has kernel_loading.py load the kernel when enough requests come;
quiet_loading.py loads the kernel while the broker is quiet. pipeline.py appends the Produce
requests that are not in a plan. May import: every package below fetch and produce in the layers of
docs/architecture.md, and network.
"""
