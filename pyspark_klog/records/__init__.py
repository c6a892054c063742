"""The record format of Kafka (v0, v1, v2): the same bytes on the wire and on disk.

May import ids and errors of this package and the codecs; numba only in kernels/, when it is used.
Start reading at FORMAT.md, then layout.py, batch.py (views), builder.py and sets.py (any format).
"""
