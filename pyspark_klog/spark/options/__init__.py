"""The options of the data source: declared as rows, read from text, checked.

May import: client's settings and addresses; of spark: offsets, errors. Pure: no brokers, no Spark.
Start reading at rows.py, then reader.py, which makes the Options of options.py.
"""
