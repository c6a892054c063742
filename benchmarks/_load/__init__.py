"""Load generators: they run in a process of their own, compiled, outside of Python's lock.

The generators may import pyspark_klog; the benchmarks use them through generator.py, in jobs.py's
terms. Start reading at jobs.py, then child.py, then the kernels: produce_kernels.py,
fetch_kernels.py.
"""
