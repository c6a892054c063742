"""The options of the data source: every one as a row, read from text, checked, printed.

May import: client's settings; of spark: offsets, errors. Pure: no broker is asked, and no Spark.
Start reading at rows.py, then reader.py, which makes the Options of options.py.
"""
