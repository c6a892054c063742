"""Compiles the broker's kernels (functions for numba): ``python -m klog_broker.warm``.

The compiled code is stored in a cache on disk. ``./dev`` (klog's script for development) and the
build of a container image run this module. If a broker needs kernels that the cache does not have,
it runs this module in a child process.
"""

import importlib
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark_klog.closed_pipe import quiet_on_closed_pipe
from pyspark_klog.records.kernels import cache

# The modules that contain the kernels of a broker (functions that numba compiles).
KERNEL_MODULES = (
    "pyspark_klog.records.kernels.scan",
    "pyspark_klog.records.kernels.record_validation",
    "pyspark_klog.records.kernels.rewriting",
    "pyspark_klog.records.kernels.messages",
    "pyspark_klog.records.kernels.down_conversion",
    "klog_broker.compaction.kernel",
    "klog_broker.coordinator.group.commit_kernel",
    "klog_broker.runtime.net.socket_kernel",
    "klog_broker.produce.kernel",
)
_RECORDS_MODULE_COUNT = 5
_SLOWEST_MODULE = KERNEL_MODULES[-1]
"""The module whose kernels take longest to compile: another process compiles them in parallel to
the other modules."""


def warm(modules: Sequence[str]) -> None:
    """Load the kernels (numba functions) of these modules, compile those that are not cached, and
    print a line for each. Then mark the modules' caches as warm (complete), except the cache of the
    package ``pyspark_klog.records.kernels``. If numba cannot compile, only print the reason."""
    from pyspark_klog.records.kernels import jit

    if not jit.COMPILED:
        _print_line(f"brokers run without compiled code, more slowly: {jit.NOT_COMPILED_REASON}")
        return
    start = time.perf_counter()
    sources: list[str] = []
    for name in modules:
        before = len(jit.loaded_kernels)
        source = str(importlib.import_module(name).__file__)
        # Do not mark the cache of pyspark_klog.records.kernels as warm (complete): the modules of
        # that package share one cache, and only some of these modules are loaded here.
        # pyspark_klog.warm loads all of them and marks the cache.
        if name not in KERNEL_MODULES[:_RECORDS_MODULE_COUNT]:
            sources.append(source)
        for kernel in jit.loaded_kernels[before:]:
            how = "from the cache" if kernel.from_cache else "compiled"
            _print_line(f"{kernel.name}: {how} in {kernel.seconds:.2f} s")
    for own in sources:
        if cache.cache_directory(own) is None:
            _print_line(
                "no folder can be written to, so each process will compile the kernels again"
            )
        cache.mark_warm(own)
    _print_line(f"{len(jit.loaded_kernels)} kernels ready in {time.perf_counter() - start:.1f} s")


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def _compiling_in_parallel(module: str) -> Iterator[None]:
    """Compile the kernels (numba functions) of ``module`` in another process during the `with`
    block, unless the cache has them.

    The block ends after the other process has ended.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or cache.is_warm(str(spec.origin)):
        yield
        return
    command = [sys.executable, "-P", "-m", "klog_broker.warm", module]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL):
        yield


def main(modules: Sequence[str]) -> int:
    """Compile and load the kernels (numba functions) of these modules; if ``modules`` is empty, of
    all modules in KERNEL_MODULES."""
    if modules:
        warm(modules)
        return 0
    others = [name for name in KERNEL_MODULES if name != _SLOWEST_MODULE]
    with _compiling_in_parallel(_SLOWEST_MODULE):
        warm(others)
    warm([_SLOWEST_MODULE])
    return 0


if __name__ == "__main__":
    with quiet_on_closed_pipe():
        sys.exit(main(sys.argv[1:]))
