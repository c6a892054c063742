"""Shows errors to the user in one line, without the traceback of klog's code."""

import functools
import os
from collections.abc import Callable, Iterator
from typing import NoReturn, ParamSpec, TypeVar

from pyspark_klog.errors import KlogError

P = ParamSpec("P")
R = TypeVar("R")

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""Spark's environment variable that hides the traceback of an error."""


def one_line(method: Callable[P, R]) -> Callable[P, R]:
    """Make Spark show klog's own errors without their traceback.

    For methods that Spark calls in processes that serve only this data source (planning, a
    stream's source). Tasks run in processes with users' functions: see `one_line_in_task`.
    """

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KlogError as error:
            _raise_alone(error)
        except BaseException:
            os.environ.pop(HIDE_TRACEBACK, None)
            raise

    return wrapper


def one_line_in_task(method: Callable[P, R]) -> Callable[P, R]:
    """Make Spark show klog's own errors without their traceback, for a method that Spark calls in a
    task.

    A task's process runs users' functions, too, whose tracebacks must be shown. But a worker ends
    with the task that failed in it, so no other task sees SPARK_HIDE_TRACEBACK, which is set then.
    """

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KlogError as error:
            _raise_alone(error)
        except Exception as error:
            _raise_if_limited(error)
            raise

    return wrapper


def one_line_in_rows(method: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Make Spark show klog's own errors without their traceback, for a method that Spark calls in a
    task and that returns an iterator of rows."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from method(*args, **kwargs)
        except KlogError as error:
            _raise_alone(error)
        except Exception as error:
            _raise_if_limited(error)
            raise

    return wrapper


_MARKS = (
    "failed to map segment",
    "annot allocate memory",
    "without exception set",
    "can't start new thread",
)
"""Texts of the errors other than MemoryError that Python and the system's loader raise when a
process's address space is used up."""
_LIMIT_MB = "PYSPARK_EXECUTOR_MEMORY_MB"
"""An environment variable that Spark sets for workers if spark.executor.pyspark.memory is set."""


class WorkerMemoryTooSmall(KlogError):
    """A Python worker of Spark may not use as much memory as klog needs."""


def _raise_if_limited(error: BaseException) -> None:
    """Replace an error of a worker whose memory Spark limits, if the limit may be the cause.

    :raises WorkerMemoryTooSmall: if an import or an allocation failed, even if another library has
        raised an error of its own instead
    """
    limit_mb = os.environ.get(_LIMIT_MB)
    if limit_mb is None:
        return
    if not any(isinstance(each, MemoryError) or _is_marked(each) for each in _chain(error)):
        return
    _raise_alone(
        WorkerMemoryTooSmall(
            f"this Python worker ran out of memory ({type(error).__name__}): it may use {limit_mb} "
            "MiB of address space, which is spark.executor.pyspark.memory divided by the cores of "
            "an executor; give each core 2 GiB or more, or leave the setting out"
        )
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then its cause, or else its context, then that error's cause, and so on."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _is_marked(error: BaseException) -> bool:
    text = str(error)
    return any(mark in text for mark in _MARKS)


def _raise_alone(error: KlogError) -> NoReturn:
    os.environ[HIDE_TRACEBACK] = "1"
    error.__cause__ = None
    raise error
