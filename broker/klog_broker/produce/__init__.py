"""Appends the batches of Produce requests: with a produce plan or with the pipeline.

A compiled kernel checks together the plain Produce requests that an event-loop turn has received
from all connections, and assigns their offsets: this is the turn's produce plan. kernel.py makes
the plan; tables.py writes and reads the kernel's table; planner.py writes the planned batches to
the logs' files and then makes them part of the logs; targets.py finds the partitions that may be in
a plan. turn_plans.py collects the connections of a plan, and has kernel_loading.py load the kernel
when enough requests come; quiet_loading.py loads the kernel while the broker is quiet (without
requests). pipeline.py appends the Produce requests that are not in a plan, which the ordinary
Produce handler (api/produce.py) has read. May import: every package below fetch and produce in the
layers of docs/architecture.md, and network.
"""
