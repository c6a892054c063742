"""Records in arrays: the compiled functions behind arrow.py, the broker's validation and recovery.

May import layout, errors and checksums of records/; numba only through jit.py, when a kernel loads.
Start reading at jit.py, then records.py (one record), decode.py, encode.py, down.py, scan.py
and walk.py.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_klog.records.kernels.scan import scan_batches as scan_batches
    from pyspark_klog.records.kernels.walk import walk_records as walk_records


def kernels_compiled() -> bool:
    """Whether kernels run compiled; False without numba, where all is plain Python and slow.

    Imports numba if it is there, which takes 0.2 to 0.5 s.
    """
    from pyspark_klog.records.kernels.jit import COMPILED

    return COMPILED


def why_not_compiled() -> str:
    """The reason in words, empty if kernels are compiled."""
    from pyspark_klog.records.kernels.jit import WHY_PLAIN

    return WHY_PLAIN


def kernels_are_cached() -> bool:
    """Whether loading the kernels of this package will take no compiling; does not import numba."""
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
