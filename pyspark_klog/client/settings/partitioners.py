"""Chooses the partition of rows whose column partition is null or missing: `partitioner.class`.

A partitioner chooses for many rows at once. Java's built-in partitioners are recognized by their
class names; a user's own partitioner is ``module:callable``.
"""

import importlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_klog.client.errors import SettingError

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

_SETTING = "partitioner.class"
_PACKAGE = "org.apache.kafka.clients.producer."
_BUILT_IN = {
    f"{_PACKAGE}internals.DefaultPartitioner": "default",
    f"{_PACKAGE}UniformStickyPartitioner": "sticky",
    f"{_PACKAGE}RoundRobinPartitioner": "round robin",
}
_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

Choose = Callable[[str, "RecordBatch", int], Any]
"""A user's partitioner: ``choose(topic, rows, partition_count)`` returns the partition number of
each row, as an Arrow or numpy array or a sequence; null leaves the row to the default partitioner
(the key's hash)."""


class RowsWithoutPartition(NamedTuple):
    """Rows of a topic that name no partition."""

    topic: str
    rows: "RecordBatch"
    partition_count: int
    sticky_partition: int


Partitioner = Callable[[RowsWithoutPartition], "Array"]
"""Returns an Arrow array of int32 with the partition number of each row; null leaves the row to the
default partitioner."""


def check_partitioner(name: str, prefix: str = "") -> None:
    """Refuse a name that is neither a built-in partitioner nor has the form ``module:callable``.
    Only a process that writes rows imports the module (`partitioner_for`).

    :raises SettingError: naming the built-in partitioners
    """
    if _built_in(name) is not None or _OWN.fullmatch(name):
        return
    known = ", ".join(sorted(_BUILT_IN))
    raise SettingError(
        f"{prefix}{_SETTING} is {name!r}; expected module:callable (a Python function of topic, "
        f"rows and partition count), or one of {known}; a partition column overrides both"
    )


def partitioner_for(name: str | None, *, ignore_keys: bool) -> Partitioner | None:
    """The partitioner for rows that name no partition; None for the default (the key's hash).

    ``name`` is partitioner.class, ``ignore_keys`` partitioner.ignore.keys, which counts only if
    ``name`` is None: then all rows of one call go into one partition, whatever their keys.

    :raises SettingError: if a user's own partitioner cannot be imported, or is not callable
    """
    if name is None:
        return _uniform_sticky if ignore_keys else None
    built_in = _built_in(name)
    if built_in == "sticky":
        return _uniform_sticky
    if built_in == "round robin":
        return RoundRobin()
    return None if built_in == "default" else UserPartitioner(name, _import(name))


def _uniform_sticky(given: RowsWithoutPartition) -> "Array":
    """Put all rows of one call into one partition, ``sticky_partition``, whatever their keys."""
    import pyarrow as pa

    return pa.repeat(pa.scalar(given.sticky_partition, pa.int32()), given.rows.num_rows)


class RoundRobin:
    """Puts each row of a topic into the partition after that of the previous row, whatever its key;
    the first row goes into ``sticky_partition``."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, given: RowsWithoutPartition) -> "Array":
        """The partition of each row, in the order of the rows."""
        import numpy as np
        import pyarrow as pa

        first = self._next.get(given.topic, given.sticky_partition)
        end = first + given.rows.num_rows
        self._next[given.topic] = end
        return pa.array((np.arange(first, end) % given.partition_count).astype(np.int32))


class UserPartitioner:
    """Calls the user's function that partitioner.class names as ``module:callable``."""

    def __init__(self, name: str, function: Choose) -> None:
        self._name = name
        self._function = function

    def __call__(self, given: RowsWithoutPartition) -> "Array":
        """The partitions that the user's function returns for the rows.

        :raises SettingError: if the function does not return a whole number or null for each row
        """
        import pyarrow as pa

        found = self._function(given.topic, given.rows, given.partition_count)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        try:
            chosen = found if isinstance(found, pa.Array) else pa.array(found, from_pandas=True)
            numbers = chosen.cast(pa.int32())
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SettingError(
                f"{_SETTING} {self._name} gave {type(found).__name__}, which cannot be read as "
                f"partition numbers (int32): {error}"
            ) from None
        if len(numbers) != given.rows.num_rows:
            raise SettingError(
                f"{_SETTING} {self._name} gave {len(numbers)} numbers for {given.rows.num_rows} "
                "rows; expected one for each"
            )
        return numbers


def _built_in(name: str) -> str | None:
    return _BUILT_IN.get(name.removeprefix("kafkashaded."))


def _import(name: str) -> Choose:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SettingError(
            f"{_SETTING} names {name}: {error}; the module must be installed for every executor"
        ) from None
    if not callable(found):
        raise SettingError(f"{_SETTING} names {name}, which is not callable")
    function: Choose = found
    return function
