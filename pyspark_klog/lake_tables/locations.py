"""The options that name a lake's tables, and the names that topics get as tables. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark_klog.lake_tables.errors import LakeError

_EXPECTED = "expected iceberg:CATALOG.NAMESPACE or delta:PATH"


@dataclass(frozen=True, slots=True)
class IcebergNamespace:
    """A namespace of an Iceberg catalog, in which each topic has a table."""

    catalog: str
    """The catalog's name in pyiceberg's configuration."""
    namespace: str
    """The namespace, with a dot between its levels."""

    def __str__(self) -> str:
        return f"iceberg:{self.catalog}.{self.namespace}"


@dataclass(frozen=True, slots=True)
class DeltaDirectory:
    """A directory, local or in an object store, in which each topic has a Delta table."""

    path: str

    def __str__(self) -> str:
        return f"delta:{self.path}"


Destination = IcebergNamespace | DeltaDirectory


def parse_destination(text: str) -> Destination:
    """Parse the value of --to.

    :raises LakeError: naming the two forms that are expected
    """
    kind, _, rest = text.partition(":")
    if kind == "iceberg":
        catalog, _, namespace = rest.partition(".")
        if catalog and namespace and all(namespace.split(".")):
            return IcebergNamespace(catalog, namespace)
    elif kind == "delta" and rest:
        path = rest.rstrip("/") or "/"
        return DeltaDirectory(path if "://" in path else str(Path(path).absolute()))
    raise LakeError(f"{text} names no place for tables: {_EXPECTED}")


def parse_table(text: str) -> tuple[Destination, str]:
    """Parse the address of one table, iceberg:CATALOG.NAMESPACE.TABLE or delta:PATH/TABLE, into the
    place of the table and the table's name.

    :raises LakeError: if the text has neither form
    """
    separator = "/" if text.startswith("delta:") else "."
    place, _, name = text.rstrip("/").rpartition(separator)
    if not place or not name:
        raise LakeError(
            f"{text} names no table: expected iceberg:CATALOG.NAMESPACE.TABLE or delta:PATH/TABLE"
        )
    return parse_destination(place), name


def table_name(topic: str) -> str:
    """Return the name of a topic's table: the topic's name in lower case, with ``_`` for ``.`` and
    ``-``, because not every engine can read the other characters in a table's name."""
    return topic.lower().replace(".", "_").replace("-", "_")


def table_names(topics: Iterable[str]) -> dict[str, str]:
    """Return the table name of each topic.

    :raises LakeError: if two topics would get the same table
    """
    by_name: dict[str, str] = {}
    for topic in topics:
        name = table_name(topic)
        other = by_name.setdefault(name, topic)
        if other != topic:
            raise LakeError(
                f"topics {other} and {topic} would both have the table {name}: copy them to two "
                "different places, with one command for each"
            )
    return {topic: name for name, topic in by_name.items()}
