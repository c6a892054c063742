"""The exactly-once sink: a task's rows and its progress row become visible together, only once.

A progress row says what a task has written; the task's consumer group stores it as an offset.

May import: client, records; of spark: options, workers, errors, and the sink's rows.
Start reading at client/admin/sink_progress.py (the ids and positions on brokers) and progress.py,
then decisions.py (the tables), then task.py (a task's side) and commit.py (the driver's side).
"""
