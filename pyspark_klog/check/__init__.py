"""`python -m pyspark_klog check`: checks the Pythons with their packages, the Java and the brokers
that a Spark job would use, before the job starts and without starting Spark.

May import: client, interpreters, properties, records/kernels (never numba itself), errors.
Start reading at command.py.
"""
