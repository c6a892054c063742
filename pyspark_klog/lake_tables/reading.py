"""Reads what one version of a table says: its files and its border."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark_klog.lake_tables.border import Border, Origin
from pyspark_klog.lake_tables.errors import LakeError
from pyspark_klog.lake_tables.locations import parse_table
from pyspark_klog.lake_tables.table import TableFile


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a topic's table."""

    name: str
    """The table's address, for messages."""
    origin: Origin
    border: Border
    files: Sequence[TableFile]


def read_version(
    table: str, properties: Mapping[str, str], snapshot: int | None = None
) -> TableVersion:
    """Read a version of a table: the newest one, or that of an Iceberg snapshot id or Delta version
    ``snapshot``. ``properties`` are those of the Iceberg catalog, or delta-rs' storage options.

    :raises LakeError: if the table or the version is missing, if `klog lake` has not made the
        table, or if it has row-level deletes
    """
    from pyspark_klog.lake_tables.opening import open_table

    place, name = parse_table(table)
    opened = open_table(place, name, properties)
    if opened.load() is None:
        raise LakeError(
            f"{opened.name} does not exist: correct the table's address, or copy the topic with "
            "klog lake run first"
        )
    head = opened.head(snapshot)
    return TableVersion(opened.name, head.origin, head.border, opened.files(snapshot))


def lake_offsets(table: str, *, catalog: Mapping[str, str] | None = None) -> str:
    """The offsets at which a table of `klog lake` ends, as JSON for a stream's option
    startingOffsets, so that the stream goes on exactly where the table ends::

        offsets = pyspark_klog.lake_offsets("iceberg:lake.klog.orders")
        stream = spark.readStream.format("klog").option("startingOffsets", offsets) ...

    The table has committed records only: let the stream have the option
    ``kafka.isolation.level`` = ``read_committed``, too. A partition that was added to the topic
    after the table's last commit is missing in the JSON until the next commit. ``catalog`` is as
    in `lake`.

    :raises LakeError: if the table is missing or cannot be read
    """
    version = read_version(table, catalog or {})
    border = {str(number): version.border[number] for number in sorted(version.border)}
    return json.dumps({version.origin.topic: border})
