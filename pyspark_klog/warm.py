"""Compiles the kernels (numba functions) of pyspark_klog and caches the machine code.

Run ``python -m pyspark_klog.warm`` when you build an image: otherwise the first use compiles the
kernels, which takes seconds.
"""

import importlib
import sys
import time
from collections.abc import Sequence

from pyspark_klog.closed_pipe import quiet_on_closed_pipe
from pyspark_klog.records.kernels import cache

_OF_RECORDS = (
    "scan",
    "record_validation",
    "batch_contents",
    "rewriting",
    "messages",
    "partition",
    "batch_decoding",
    "batch_encoding",
    "down_conversion",
)
KERNEL_MODULES = (
    *(f"pyspark_klog.records.kernels.{name}" for name in _OF_RECORDS),
    "pyspark_klog.spark.sink.exactly_once.row_hash_kernel",
)


def warm(modules: Sequence[str]) -> None:
    """Compile and cache the kernels (numba functions) of ``modules``, or load them from the cache.

    Without compiled kernels (numba is missing or disabled) this function prints only the reason.
    With numba the function prints a line for each kernel, then creates an empty file in each cache
    directory, which marks all kernels there as cached. The modules of one folder share a cache
    directory, so pass all modules of a folder in the same call.
    """
    from pyspark_klog.records.kernels import jit

    if not jit.COMPILED:
        _say(f"kernels run as plain Python, slow but correct: {jit.NOT_COMPILED_REASON}")
        return
    start = time.perf_counter()
    sources: set[str] = set()
    for name in modules:
        before = len(jit.loaded_kernels)
        module = importlib.import_module(name)
        sources.add(str(module.__file__))
        for kernel in jit.loaded_kernels[before:]:
            how = "from the cache" if kernel.from_cache else "compiled"
            _say(f"{kernel.name}: {how} in {kernel.seconds:.2f} s")
    directories = {source: cache.cache_directory(source) for source in sorted(sources)}
    for directory in dict.fromkeys(directories.values()):
        if directory is None:
            _say("no folder can be written to, so each process will compile them again")
        else:
            _say(f"kept in {directory}")
    for source in directories:
        cache.mark_warm(source)
    _say(f"{len(jit.loaded_kernels)} kernels ready in {time.perf_counter() - start:.1f} s")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Compile and cache the kernels (numba functions) of pyspark_klog; return the exit code."""
    warm(KERNEL_MODULES)
    return 0


if __name__ == "__main__":
    with quiet_on_closed_pipe():
        sys.exit(main())
