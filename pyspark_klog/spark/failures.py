"""How errors reach the user: one line, without the traceback of code that is not theirs."""

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pyspark_klog.errors import KlogError

P = ParamSpec("P")
R = TypeVar("R")

_HIDE = "SPARK_HIDE_TRACEBACK"


def one_line(method: Callable[P, R]) -> Callable[P, R]:
    """Let Spark show klog's own errors without their traceback.

    For methods that Spark calls in processes that only serve this data source (planning, a
    stream's source), not for tasks, whose processes run users' functions too.
    """

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KlogError as error:
            os.environ[_HIDE] = "1"
            error.__cause__ = None
            raise
        except BaseException:
            os.environ.pop(_HIDE, None)
            raise

    return wrapper


def one_line_in_task(method: Callable[P, R]) -> Callable[P, R]:
    """The same for a method that Spark calls in a task.

    Such a process runs users' functions too, whose tracebacks are to be seen; but a worker ends
    with the task that failed in it, so nothing else sees what is set here.
    """

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KlogError as error:
            os.environ[_HIDE] = "1"
            error.__cause__ = None
            raise

    return wrapper
