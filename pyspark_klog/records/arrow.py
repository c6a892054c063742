"""Public names for decoding batches to Arrow columns and encoding Arrow columns to batches.

Importing this module loads numba, if it is installed, and the kernels (functions that numba has
compiled) for decoding and encoding from their cache directory. Compiling a kernel that is missing
in the cache takes seconds; ``python -m pyspark_klog.warm`` fills the cache beforehand.
"""

from pyspark_klog.records.aborted_transactions import AbortedTransaction
from pyspark_klog.records.arrow_columns import (
    COLUMN_TYPES,
    DEFAULT_COLUMNS,
    schema_for,
)
from pyspark_klog.records.arrow_decode import ArrowDecoder
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
    "EncodedBatch",
    "EncodedRows",
    "MalformedTimestamp",
    "RejectedRow",
    "RowProblem",
    "encode_from_arrow",
    "schema_for",
]
