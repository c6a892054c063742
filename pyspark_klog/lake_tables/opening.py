"""Opens the table that a destination and a name stand for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_klog.lake_tables.errors import LakeError
from pyspark_klog.lake_tables.locations import Destination, IcebergNamespace

if TYPE_CHECKING:
    from pyspark_klog.lake_tables.delta import DeltaLakeTable
    from pyspark_klog.lake_tables.iceberg import IcebergTable


def open_table(
    place: Destination, name: str, properties: Mapping[str, str]
) -> "IcebergTable | DeltaLakeTable":
    """Return a table, which may not exist yet. ``properties`` are those of the Iceberg catalog, or
    the storage options of delta-rs.

    :raises LakeError: if the packages for the table's format are not installed, or the catalog
        cannot be opened
    """
    if isinstance(place, IcebergNamespace):
        try:
            from pyspark_klog.lake_tables.iceberg import IcebergTable, open_catalog
        except ImportError as error:
            raise _missing("Iceberg", "lake", error) from error
        return IcebergTable(open_catalog(place.catalog, properties), place, name)
    try:
        from pyspark_klog.lake_tables.delta import DeltaLakeTable
    except ImportError as error:
        raise _missing("Delta", "lake-delta", error) from error
    return DeltaLakeTable(place, name, properties)


def _missing(kind: str, extra: str, error: ImportError) -> LakeError:
    return LakeError(
        f"{kind} tables need a package that is not installed ({error}): "
        f"pip install 'pyspark-klog[{extra}]'"
    )
