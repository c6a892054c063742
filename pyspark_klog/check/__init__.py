"""`python -m pyspark_klog check`: what a job needs before it starts, without starting Spark.

May import: client, interpreters, properties, records' kernels (never numba itself), errors.
Start reading at command.py.
"""
