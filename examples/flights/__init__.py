"""The flights of New York in 2013, through klog and Spark: ``python -m examples.flights``.

jobs.py is what a user would write; demo.py runs it, kills it, starts it again, checks the result.
"""
