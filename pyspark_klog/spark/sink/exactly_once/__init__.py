"""The exactly-once sink: a task's rows and its progress row become visible together, only once.

A progress row says what a task has written; the task's consumer group stores it as an offset.

May import: client, records; of spark: options, workers, errors; of sink: row_writer, dead_letters.
Start reading at client/admin/sink_progress.py (the ids and offsets that brokers store) and
progress.py, then decisions.py (tables that decide what a task does), then task.py (a task's side)
and commit.py (the driver's side).
"""
