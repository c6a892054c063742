"""Batches to Arrow columns and back: the names that others use.

Importing this loads numba (if it is there) and the compiled kernels from their cache, or compiles
them, which takes seconds: ``python -m pyspark_klog.warm`` does it beforehand.
"""

from pyspark_klog.records.aborted import AbortedTransaction
from pyspark_klog.records.arrow_columns import (
    COLUMN_TYPES,
    DEFAULT_COLUMNS,
    schema_for,
)
from pyspark_klog.records.arrow_decode import (
    ArrowDecoder,
    DecodedRecords,
    decode_to_arrow,
)
from pyspark_klog.records.arrow_encode import (
    EncodedBatch,
    EncodedRows,
    RejectedRow,
    RowProblem,
    encode_from_arrow,
)
from pyspark_klog.records.kernels.status import MalformedTimestamp

__all__ = [
    "COLUMN_TYPES",
    "DEFAULT_COLUMNS",
    "AbortedTransaction",
    "ArrowDecoder",
    "DecodedRecords",
    "EncodedBatch",
    "EncodedRows",
    "MalformedTimestamp",
    "RejectedRow",
    "RowProblem",
    "decode_to_arrow",
    "encode_from_arrow",
    "schema_for",
]
