"""Decorators that compile kernels with numba. No other module of this package imports numba.

Without numba, or with NUMBA_DISABLE_JIT=1, kernels run as plain Python with the same results, but
slowly. In plain Python the arrays are passed as memoryviews, so that every element is a Python int,
which never overflows.
"""

import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable
from functools import cache, update_wrapper, wraps
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pyspark_klog.records.kernels.cache import cache_directory

# Callers and compiled kernels see a numpy array; kernels in plain Python see a memoryview.
Array: TypeAlias = Any

F = TypeVar("F", bound=Callable[..., Any])

numba: Any = None  # Any, because the parts of numba used here differ between its releases
NOT_COMPILED_REASON = ""

if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
    NOT_COMPILED_REASON = "NUMBA_DISABLE_JIT is set"
else:
    try:
        numba = importlib.import_module("numba")
    except ImportError as error:
        NOT_COMPILED_REASON = f"numba cannot be imported: {error}"
    else:
        NOT_COMPILED_REASON = (
            "numba's configuration disables compiling" if numba.config.DISABLE_JIT else ""
        )

COMPILED = not NOT_COMPILED_REASON
BOUNDSCHECK = COMPILED and bool(numba.config.BOUNDSCHECK)
_CAN_FORCE_INLINE = COMPILED and hasattr(numba.core.options.DefaultOptions, "forceinline")
_WITHOUT_COUNTS: dict[str, bool] = (
    {"_nrt": False} if COMPILED and hasattr(numba.core.options.DefaultOptions, "_nrt") else {}
)
"""Options that disable numba's reference counts, where numba supports it.

The callers of a kernel hold references to the arrays anyway. Counting references atomically at
every call inside a kernel took two thirds of the time of hashing short keys, and a quarter of the
time of decoding and encoding. Without counts a kernel cannot create arrays.
"""


@cache
def _type(name: str) -> Any:
    """Return the numba type for a name in a signature of :func:`kernel`."""
    if name == "i64":
        return numba.types.int64
    width = name.removeprefix("in").removeprefix("out")
    element = {"8": "uint8", "32": "int32", "64": "int64"}[width]
    readonly = name.startswith("in")
    return numba.types.Array(getattr(numba.types, element), 1, "C", readonly=readonly)


class LoadedKernel(NamedTuple):
    """A compiled kernel: seconds to load or compile it, and whether it came from the cache."""

    name: str
    seconds: float
    from_cache: bool


loaded_kernels: list[LoadedKernel] = []
"""The compiled kernels of this process, in loading order."""


def kernel(*signature: str) -> Callable[[F], F]:
    """Return a decorator that compiles a function for calls from Python.

    The function takes arrays and integers and returns an integer. ``signature`` has the type of
    each argument: ``i64``, the read-only arrays ``in8``, ``in32`` and ``in64`` (uint8, int32,
    int64), and the writable arrays ``out8``, ``out32`` and ``out64``; all arrays are contiguous.
    Compiled code is stored in the cache directory, if there is one, and runs without the GIL. The
    code raises no exception, except IndexError with NUMBA_BOUNDSCHECK=1.
    """

    def decorate(function: F) -> F:
        decorated: F
        if not COMPILED:
            return _plain(function)
        arguments = numba.types.int64(*[_type(name) for name in signature])
        start = time.perf_counter()
        compiled = _compile(function, arguments)
        seconds = time.perf_counter() - start
        name = f"{function.__module__}.{function.__name__}"
        loaded_kernels.append(LoadedKernel(name, seconds, bool(compiled.stats.cache_hits)))
        decorated = compiled
        return decorated

    return decorate


def _compile(function: Any, arguments: Any) -> Any:
    options = {"nogil": True, "error_model": "numpy", **_WITHOUT_COUNTS}
    directory = cache_directory(function.__code__.co_filename)
    if directory is not None:
        if not Path(function.__code__.co_filename).exists():
            function = _with_source_in(directory, function)
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(directory)
        try:
            return numba.njit(arguments, cache=True, **options)(function)
        except (OSError, RuntimeError):
            pass  # the cache cannot be written, as on a full disk: compile without it
        finally:
            numba.config.CACHE_DIR = before
    return numba.njit(arguments, **options)(function)


def _with_source_in(directory: Path, function: Any) -> Any:
    """Return ``function`` with its source file copied to ``directory``.

    Older releases of numba do not cache a function whose source file lies in a zip archive.
    """
    code = function.__code__
    copy = directory / Path(code.co_filename).name
    if not copy.exists():
        source = inspect.getsource(sys.modules[function.__module__])
        copy.with_suffix(f".{os.getpid()}").write_text(source, encoding="utf-8")
        copy.with_suffix(f".{os.getpid()}").replace(copy)
    moved = FunctionType(code.replace(co_filename=str(copy)), function.__globals__)
    return update_wrapper(moved, function)


def inline(function: F) -> F:
    """Make a function callable from kernels only; it is compiled into each kernel that calls it."""
    return _helper(function)


def hot(function: F) -> F:
    """Make a function callable from kernels, and copy its code to every call (forced inlining).

    Use this decorator for functions that run for every record. The decorator makes decoding a fifth
    faster, but compiling slower, so few functions have it.
    """
    if COMPILED and _CAN_FORCE_INLINE:
        return _helper(function, forceinline=True)
    return _helper(function)


def _helper(function: F, **options: bool) -> F:
    if not COMPILED:
        return function
    options |= {"nogil": True, "no_cpython_wrapper": True, **_WITHOUT_COUNTS}
    decorated: F = numba.njit(error_model="numpy", **options)(function)
    return decorated


def _plain(function: F) -> F:
    @wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*[_as_view(a) for a in arguments])

    return call  # type: ignore[return-value]


def _as_view(argument: Any) -> Any:
    return argument.data if isinstance(argument, np.ndarray) else argument
