"""Makes Spark's Python processes stop at the points of traps.py: in tests only, by the environment.

`site/sitecustomize.py` is on the PYTHONPATH of a soak's drivers, so each of their Python processes
calls `install`. The product is not changed and knows nothing of this: its methods are wrapped when
their module is imported.
"""

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tests.soak.traps import Point, note, reach

_Hooks = tuple[tuple[str, Point | None, Point | None], ...]

_HOOKS: dict[str, _Hooks] = {
    "pyspark_klog.client.transactions.producer": (
        ("TransactionalProducer.init_transactions", None, Point.ID_TAKEN),
        (
            "TransactionalProducer.send_offsets_to_transaction",
            Point.ROWS_WRITTEN,
            Point.ROW_WRITTEN,
        ),
        ("TransactionalProducer.commit_transaction", None, Point.TASK_ENDED),
        ("TransactionalProducer.hand_over", None, Point.HANDED_OVER),
        ("TransactionalProducer.abort_transaction", None, None),
        ("end_transaction", Point.BEFORE_END, Point.AFTER_END),
    ),
    "pyspark_klog.spark.sink.exactly_once.task_group": (("TaskGroup.row", None, None),),
    "pyspark_klog.spark.sink.stream_writer": (
        ("ArrowStreamWriter.write", None, Point.WRITE_DONE),
        ("ArrowStreamWriter.commit", Point.COMMIT_BEGINS, Point.COMMIT_DONE),
    ),
    "pyspark_klog.spark.sink.writer": (
        ("SinkBatchWriter.write", None, Point.WRITE_DONE),
        ("SinkBatchWriter.commit", Point.COMMIT_BEGINS, Point.COMMIT_DONE),
    ),
}
"""For each module: a function or method, the point before it and the point after it."""


def install() -> None:
    """Wrap the functions of `_HOOKS` whenever their module is imported."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the modules that must be wrapped, by way of the other finders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _HOOKS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        assert spec is not None and spec.loader is not None
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads a module, then wraps its functions."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for name, before, after in _HOOKS[module.__name__]:
            holder, _, attribute = name.rpartition(".")
            owner = getattr(module, holder) if holder else module
            setattr(owner, attribute, _hooked(getattr(owner, attribute), name, before, after))


def _hooked(
    method: Callable[..., Any], name: str, before: Point | None, after: Point | None
) -> Callable[..., Any]:
    @functools.wraps(method)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            reach(before)
        try:
            result = method(*args, **kwargs)
        except BaseException as error:
            note(f"{name}: {type(error).__name__}: {error}")
            raise
        note(name)
        if after is not None:
            reach(after)
        return result

    return hooked
