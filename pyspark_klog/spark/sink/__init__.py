"""The sink: rows as Arrow batches to topics, by batches, streams and ``foreachBatch``.

May import: client, records; of spark: options, workers, errors.
Start reading at writer.py, then rows.py; exactly_once has a door of its own.
"""
