"""The sink: writes rows as Arrow batches to topics, for batches, streams and ``foreachBatch``.

May import: client, records; of spark: options, workers, errors.
Start reading at writer.py, then row_writer.py; exactly_once/__init__.py introduces its own package.
"""
