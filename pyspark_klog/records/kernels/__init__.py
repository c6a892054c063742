"""Compiled functions that work on the bytes of many records: kernels.

Kernels serve arrow.py and, for example, the broker's validation, down-conversion and compaction.
This package may import layout, errors and checksums of records/. Only jit.py imports numba, which
happens when the first module with kernels is imported. Start reading at jit.py, then records.py
(one record), batch_decoding.py, batch_encoding.py, down_conversion.py, scan.py and
record_validation.py.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_klog.records.kernels.record_validation import validate_records as validate_records
    from pyspark_klog.records.kernels.scan import scan_batches as scan_batches


def kernels_compiled() -> bool:
    """Whether kernels run as machine code that numba has compiled; False if they run as plain
    Python, which is slow.

    The first call imports numba, which takes 0.2 to 0.5 s, unless numba is not installed or
    NUMBA_DISABLE_JIT is set.
    """
    from pyspark_klog.records.kernels.jit import COMPILED

    return COMPILED


def not_compiled_reason() -> str:
    """Return the reason why kernels run as plain Python; empty if they are compiled."""
    from pyspark_klog.records.kernels.jit import NOT_COMPILED_REASON

    return NOT_COMPILED_REASON


def kernels_are_cached() -> bool:
    """Whether the cache has all kernels of this package, so that loading them compiles nothing.

    The call does not import numba.
    """
    from pyspark_klog.records.kernels import cache

    return cache.is_warm(cache.__file__)


def claim_first_use() -> bool:
    """Whether kernels will have to be compiled on this machine for the first time; True in one
    process only, unless there is no cache. The call does not import numba."""
    from pyspark_klog.records.kernels import cache

    return cache.claim_first_use(cache.__file__)


def __getattr__(name: str) -> Any:
    if name == "validate_records":
        from pyspark_klog.records.kernels.record_validation import validate_records

        return validate_records
    if name == "scan_batches":
        from pyspark_klog.records.kernels.scan import scan_batches

        return scan_batches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
