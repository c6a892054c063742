"""Compiles the kernels that the broker uses and keeps them: ``python -m klog_broker.warm``.

``./dev`` and an image's recipe run it; a broker that finds the cache cold runs it in a child
process when its first pipelined turn has come.
"""

import importlib
import sys
import time

from pyspark_klog.records.kernels import cache

# The modules with kernels. For each folder the file of its first module stands for the cache.
KERNEL_MODULES = (
    "pyspark_klog.records.kernels.scan",
    "pyspark_klog.records.kernels.walk",
    "pyspark_klog.records.kernels.rewrite",
    "pyspark_klog.records.kernels.messages",
    "pyspark_klog.records.kernels.down",
    "klog_broker.produce.kernel",
    "klog_broker.compaction.kernel",
    "klog_broker.runtime.socket_kernel",
)
_OF_RECORDS = 5


def warm() -> None:
    """Load the kernels, print a line for each, and mark the caches as warm."""
    from pyspark_klog.records.kernels import jit

    if not jit.COMPILED:
        _say(f"requests are served without kernels, more slowly: {jit.WHY_PLAIN}")
        return
    start = time.perf_counter()
    sources: list[str] = []
    for name in KERNEL_MODULES:
        before = len(jit.loaded)
        sources.append(str(importlib.import_module(name).__file__))
        for kernel in jit.loaded[before:]:
            how = "from the cache" if kernel.from_cache else "compiled"
            _say(f"{kernel.name}: {how} in {kernel.seconds:.2f} s")
    # The records kernels have one mark for all of them, which pyspark_klog.warm sets.
    for own in sources[_OF_RECORDS:]:
        if cache.cache_directory(own) is None:
            _say("no folder can be written to, so each process will compile the kernels again")
        cache.mark_warm(own)
    _say(f"{len(jit.loaded)} kernels ready in {time.perf_counter() - start:.1f} s")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Warm the kernels of this package."""
    warm()
    return 0


if __name__ == "__main__":
    sys.exit(main())
