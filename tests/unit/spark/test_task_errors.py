"""Errors of tasks as the user sees them."""

from collections.abc import Callable, Iterator

import pytest

from pyspark_klog.spark.workers.error_display import (
    HIDE_TRACEBACK,
    WorkerMemoryTooSmall,
    one_line_in_rows,
    one_line_in_task,
)

LIMIT = "PYSPARK_EXECUTOR_MEMORY_MB"


def _in_task(error: Exception) -> None:
    @one_line_in_task
    def write() -> None:
        raise error

    write()


def _in_rows(error: Exception) -> None:
    @one_line_in_rows
    def read() -> Iterator[int]:
        yield 1
        raise error

    assert list(read()) == [1]


BOTH = pytest.mark.parametrize("fail", [_in_task, _in_rows], ids=["task", "rows"])


@pytest.fixture(autouse=True)
def _tracebacks_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "")


@BOTH
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libx.so: failed to map segment"),
        SystemError("error return without exception set"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_worker_whose_memory_is_too_small_says_so(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[Exception], None], error: Exception
) -> None:
    monkeypatch.setenv(LIMIT, "200")
    with pytest.raises(WorkerMemoryTooSmall) as caught:
        fail(error)
    assert str(caught.value) == (
        f"this Python worker ran out of memory ({type(error).__name__}): it may use 200 MiB of "
        "address space, which is spark.executor.pyspark.memory divided by the cores of an "
        "executor; give each core 2 GiB or more, or leave the setting out"
    )


@BOTH
@pytest.mark.parametrize("first", [MemoryError(), OSError("failed to map segment")], ids=repr)
def test_a_library_that_hides_the_lack_of_memory_does_not_hide_the_sentence(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[Exception], None], first: Exception
) -> None:
    # As llvmlite raises it, without the first error as its cause.
    hiding = OSError("Could not find/load shared object file 'libllvmlite.so'")
    hiding.__context__ = first
    monkeypatch.setenv(LIMIT, "600")
    with pytest.raises(WorkerMemoryTooSmall, match=r"ran out of memory \(OSError\)") as refused:
        fail(hiding)
    assert refused.value.__context__ is hiding


@BOTH
def test_other_failures_of_imports_stay_what_they_are(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[Exception], None]
) -> None:
    with pytest.raises(MemoryError):
        fail(MemoryError())
    monkeypatch.setenv(LIMIT, "200")
    for error in (ImportError("no name x"), SystemError("bad argument"), ValueError("x")):
        with pytest.raises(type(error)):
            fail(error)
    with pytest.raises(OSError, match="no such file"):
        fail(OSError("no such file"))
