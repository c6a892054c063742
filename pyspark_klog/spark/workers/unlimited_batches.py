"""Accepts spark.sql.execution.arrow.maxRecordsPerBatch of 0 or below, for Spark "no limit".

Only Spark's planning of a Python source asserts that the number is above 0, before it calls the
source. klog chooses the size of its Arrow batches itself, so the number does not matter.
"""

import inspect
import sys
from types import ModuleType
from typing import Any

_PLANNERS = (
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
"""Spark's programs that unpickle a data source, then read maxRecordsPerBatch by ``read_int``."""
_ASSERTION = "assert max_arrow_batch_size > 0"
_NO_LIMIT = 2**31 - 1
_READ = "read_int"


def accept_unlimited_batches() -> None:
    """Make Spark's planning programs read maxRecordsPerBatch as the largest 32-bit number if it is
    0 or negative.

    Call this while such a program unpickles a data source: the program reads the number next, and
    asserts that it is above 0. The call has no effect in other processes, and in a release of Spark
    whose program has no such assertion.
    """
    for module in _planners():
        _replace_once(module)


def _planners() -> list[ModuleType]:
    found = [sys.modules[name] for name in _PLANNERS if name in sys.modules]
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if main is not None and spec is not None and spec.name in _PLANNERS:
        found.append(main)
    return found


def _replace_once(module: ModuleType) -> None:
    read_int = getattr(module, _READ, None)
    if not callable(read_int) or getattr(read_int, "__module__", None) == __name__:
        return
    try:
        if _ASSERTION not in inspect.getsource(module):
            return
    except (OSError, TypeError):  # an installation of Spark without source files
        return

    def read_batch_size(stream: Any) -> int:
        setattr(module, _READ, read_int)
        size = int(read_int(stream))
        return size if size > 0 else _NO_LIMIT

    setattr(module, _READ, read_batch_size)
