"""`python -m pyspark_klog check`: checks what a job needs, before it starts and without Spark.

May import: client, interpreters, properties, records' kernels (never numba itself), errors.
Start reading at command.py.
"""
