"""Compiled functions that work on the bytes of many records: kernels.

Kernels serve arrow.py and the broker's validation, down-conversion and recovery. This package may
import layout, errors and checksums of records/. Only jit.py imports numba, when a kernel is loaded.
Start reading at jit.py, then records.py (one record), decode.py, encode.py, down.py, scan.py and
walk.py.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_klog.records.kernels.scan import scan_batches as scan_batches
    from pyspark_klog.records.kernels.walk import walk_records as walk_records


def kernels_compiled() -> bool:
    """Whether kernels run compiled; False if they run as plain Python, which is slow.

    The call imports numba, if it is installed, which takes 0.2 to 0.5 s.
    """
    from pyspark_klog.records.kernels.jit import COMPILED

    return COMPILED


def why_not_compiled() -> str:
    """Return the reason why kernels run as plain Python; empty if they are compiled."""
    from pyspark_klog.records.kernels.jit import WHY_PLAIN

    return WHY_PLAIN


def kernels_are_cached() -> bool:
    """Whether the cache has all kernels of this package, so that loading them compiles nothing.

    The call does not import numba.
    """
    from pyspark_klog.records.kernels import cache

    return cache.is_warm(cache.__file__)


def __getattr__(name: str) -> Any:
    if name == "walk_records":
        from pyspark_klog.records.kernels.walk import walk_records

        return walk_records
    if name == "scan_batches":
        from pyspark_klog.records.kernels.scan import scan_batches

        return scan_batches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
