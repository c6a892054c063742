"""`python -m pyspark_klog check`: checks what a Spark job needs, before the job starts and without
starting Spark.

May import: client, interpreters, properties, records/kernels (never numba itself), errors.
Start reading at command.py.
"""
