"""Lake tables in Apache Iceberg's format, by pyiceberg."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from pyspark_klog.lake_tables.border import (
    BORDER,
    CLUSTER_ID,
    TOPIC,
    TOPIC_ID,
    Border,
    Head,
    Origin,
    border_text,
    parse_border,
)
from pyspark_klog.lake_tables.data_files import column_bounds, is_own
from pyspark_klog.lake_tables.errors import CommitFailed, LakeError, TableUnavailable
from pyspark_klog.lake_tables.locations import IcebergNamespace
from pyspark_klog.lake_tables.table import TableFile, WrittenFile
from pyspark_klog.records.arrow import schema_for
from pyspark_klog.records.arrow_columns import COLUMN_TYPES

_HEADER = StructType(
    NestedField(10, "key", StringType()),
    NestedField(11, "value", BinaryType()),
)
_SCHEMA = Schema(
    NestedField(1, "key", BinaryType()),
    NestedField(2, "value", BinaryType()),
    NestedField(3, "topic", StringType()),
    NestedField(4, "partition", IntegerType()),
    NestedField(5, "offset", LongType()),
    NestedField(6, "timestamp", TimestamptzType()),
    NestedField(7, "timestampType", IntegerType()),
    NestedField(8, "headers", ListType(9, _HEADER, element_required=False)),
)
_PARTITION, _OFFSET, _TIMESTAMP = 4, 5, 6

_RETRIES = "commit.retry.num-retries"
_TABLE_PROPERTIES = {
    "format-version": "2",
    # Merge small manifests, and keep few old metadata files: otherwise each commit takes longer
    # than the commit before.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog of pyiceberg's configuration, overridden by ``properties``.

    :raises LakeError: if pyiceberg has no such catalog or cannot open it
    """
    file_io = "pyspark_klog.lake_tables.iceberg_files.DurableFileIO"
    try:
        return load_catalog(name, **{"py-io-impl": file_io, **properties})
    except Exception as error:
        raise LakeError(
            f"the Iceberg catalog {name} could not be opened: {error}. Name its type, uri and "
            "warehouse in a properties file for --catalog-config, or in ~/.pyiceberg.yaml"
        ) from error


class _Transaction(Transaction):
    """A transaction that computes its metadata once for each change.

    pyiceberg's own computes and copies them, with all snapshots, each time that it reads one of
    their fields: 18 times in a commit, four fifths of the time of a commit after 100 others.
    """

    _inputs: tuple[object, object] = (None, None)
    _metadata: TableMetadata

    @property
    def table_metadata(self) -> TableMetadata:
        base, updates = self._inputs
        if base is not self._table.metadata or updates is not self._updates:
            self._metadata = super().table_metadata
            self._inputs = (self._table.metadata, self._updates)
        return self._metadata


class IcebergTable:
    """A topic's Iceberg table. The border is in the table's properties, and in the summary of each
    snapshot of `klog lake`."""

    def __init__(self, catalog: Catalog, place: IcebergNamespace, name: str) -> None:
        self.name = f"{place}.{name}"
        self.schema = _parquet_schema()
        self._catalog = catalog
        self._namespace = tuple(place.namespace.split("."))
        self._identifier = (*self._namespace, name)
        self._table: Table | None = None

    def load(self) -> Head | None:
        """Read the newest version; None if the table does not exist yet.

        :raises LakeError: if `klog lake` has not made the table
        """
        try:
            self._table = self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._table = None
            return None
        except Exception as error:
            raise TableUnavailable(f"{self.name} could not be read: {error}") from error
        # By default pyiceberg repeats a commit on top of what others have committed since, which
        # would add the rows of a second writer a second time. The property is changed only in this
        # process: for other programs the table keeps its own.
        self._table.metadata.properties[_RETRIES] = "0"
        return self.head()

    def head(self, snapshot_id: int | None = None) -> Head:
        """Return the origin and the border of the loaded table at a snapshot (None: now).

        The nearest ancestor that `klog lake` has written has the border in its summary; snapshots
        of other programs, which have compacted files or deleted rows, lie in between. If this
        ancestor has been expired, the table's properties have the border.
        """
        table = self._loaded()
        snapshot = self._snapshot(snapshot_id)
        created_ms = table.metadata.last_updated_ms if snapshot is None else 0
        last = (created_ms, table.metadata.properties)
        for committed_ms, values in (*_summaries(table, snapshot), last):
            if BORDER in values:
                origin = Origin(
                    values.get(CLUSTER_ID, ""), values.get(TOPIC, ""), values.get(TOPIC_ID, "")
                )
                return Head(origin, parse_border(values[BORDER], self.name), committed_ms)
        raise LakeError(
            f"{self.name} has no property {BORDER}, so that klog lake has not made it: copy the "
            "topic to another place"
        )

    def create(self, origin: Origin, border: Border) -> None:
        """Create the empty table, unless another writer has created it just before."""
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._namespace)
        with suppress(TableAlreadyExistsError):
            self._catalog.create_table(
                self._identifier, _SCHEMA, properties=_TABLE_PROPERTIES | _values(origin, border)
            )

    def new_file(self, file_name: str) -> tuple[str, BinaryIO]:
        """Return the address of a new data file, and the stream that writes it."""
        table = self._loaded()
        path = f"{table.location().rstrip('/')}/data/{file_name}"
        stream: Any = table.io.new_output(path).create()
        return path, stream

    def commit(self, files: Sequence[WrittenFile], border: Border) -> None:
        """Add the files and the new border, if the newest version is still the loaded one."""
        self._append(files, _values(self.head().origin, border))

    def restart(self, origin: Origin, border: Border) -> None:
        """Change the origin and the border, if the newest version is still the loaded one."""
        self._append((), _values(origin, border))

    def _append(self, files: Sequence[WrittenFile], values: dict[str, str]) -> None:
        """Add a snapshot in any case, even one without files: only a new snapshot is refused if
        another writer has added one since."""
        table = self._loaded()
        try:
            with _Transaction(table) as transaction:
                transaction.set_properties(values)
                with transaction.update_snapshot(
                    snapshot_properties=values
                ).merge_append() as append:
                    for file in files:
                        append.append_data_file(_data_file(table, file))
        except Exception as error:
            raise CommitFailed(f"{self.name}: the commit failed: {error}") from error

    def files(self, snapshot_id: int | None = None) -> list[TableFile]:
        """The data files of the loaded table at a snapshot (None: now).

        :raises LakeError: if the table has row-level deletes, which `klog lake` never writes
        """
        table = self._loaded()
        snapshot = self._snapshot(snapshot_id)
        found: list[TableFile] = []
        for manifest in () if snapshot is None else snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io)
            if manifest.content == ManifestContent.DELETES:
                if entries:
                    raise LakeError(
                        f"{self.name} has row-level deletes, which klog does not apply: read it "
                        "with an engine for Iceberg, or compact it first"
                    )
                continue
            found += [_table_file(entry.data_file) for entry in entries]
        return found

    def versions(self) -> int:
        """Return how many snapshots the table has."""
        return len(self._loaded().metadata.snapshots)

    def expire(self, keep: int) -> None:
        """Expire old snapshots, and delete the manifests that only expired snapshots have.

        Old snapshots are expired only when there are a quarter more than ``keep``, because klog has
        to read the manifest lists of all snapshots for it.
        """
        if len(self._loaded().metadata.snapshots) < keep + max(keep // 4, 1):
            return
        self.load()
        table = self._loaded()
        protected = {ref.snapshot_id for ref in table.metadata.refs.values()}
        by_age = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
        expired = [each for each in by_age[:-keep] if each.snapshot_id not in protected]
        if not expired:
            return
        kept = [each for each in by_age if each not in expired]
        try:
            unused = _manifest_paths(table, expired) - _manifest_paths(table, kept)
            with _Transaction(table) as transaction:
                ids = [each.snapshot_id for each in expired]
                ExpireSnapshots(transaction=transaction).by_ids(ids).commit()
            for path in sorted(unused):
                table.io.delete(path)
        except Exception as error:
            raise CommitFailed(f"{self.name}: snapshots could not be expired: {error}") from error

    def orphans(self, older_than_ms: int) -> list[str]:
        """Return the old files of `klog lake` that no version names."""
        table = self._loaded()
        named = {
            entry.data_file.file_path
            for manifest in _manifests(table, table.metadata.snapshots)
            for entry in manifest.fetch_manifest_entry(table.io)
        }
        directory = f"{table.location().rstrip('/')}/data"
        return [path for path in _own_files(table, directory, older_than_ms) if path not in named]

    def delete(self, path: str) -> None:
        """Delete one of the `orphans`."""
        self._loaded().io.delete(path)

    def _loaded(self) -> Table:
        assert self._table is not None, "load the table first"
        return self._table

    def _snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        table = self._loaded()
        if snapshot_id is None:
            return table.current_snapshot()
        found = table.snapshot_by_id(snapshot_id)
        if found is None:
            ids = ", ".join(str(each.snapshot_id) for each in table.snapshots()[-5:])
            raise LakeError(
                f"{self.name} has no snapshot {snapshot_id} any more; its last ones are {ids}"
            )
        return found


def _parquet_schema() -> pa.Schema:
    """The schema of the source's rows, with the ids of Iceberg's fields."""

    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    header = pa.struct([field("key", pa.string(), 10), field("value", pa.binary(), 11)])
    headers = pa.list_(field("element", header, 9))
    kinds = COLUMN_TYPES | {"headers": headers}
    names = schema_for(tuple(COLUMN_TYPES)).names
    return pa.schema([field(each, kinds[each], at) for at, each in enumerate(names, start=1)])


def _values(origin: Origin, border: Border) -> dict[str, str]:
    return {
        TOPIC: origin.topic,
        TOPIC_ID: origin.topic_id,
        CLUSTER_ID: origin.cluster_id,
        BORDER: border_text(border),
    }


def _summaries(table: Table, snapshot: Snapshot | None) -> Iterable[tuple[int, Mapping[str, str]]]:
    """The times (ms since 1970) and the summaries of a snapshot and of its ancestors that have not
    been expired."""
    while snapshot is not None:
        if snapshot.summary is not None:
            yield snapshot.timestamp_ms, snapshot.summary.additional_properties
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)


def _data_file(table: Table, file: WrittenFile) -> DataFile:
    # pyiceberg fails at bounds outside of the years 1 to 9999, so that it gets none of timestamps.
    properties = {**table.metadata.properties, "write.metadata.metrics.column.timestamp": "counts"}
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=file.metadata,
        stats_columns=compute_statistics_plan(table.schema(), properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    ).to_serialized_dict()
    for low, high in column_bounds(file.metadata, ["timestamp"]).values():
        statistics["lower_bounds"][_TIMESTAMP] = to_bytes(TimestamptzType(), low)
        statistics["upper_bounds"][_TIMESTAMP] = to_bytes(TimestamptzType(), high)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )


def _table_file(file: DataFile) -> TableFile:
    def bounds(field: int) -> tuple[Any, Any]:
        kind = _SCHEMA.find_type(field)
        return tuple(
            None if values is None or field not in values else from_bytes(kind, values[field])  # type: ignore[arg-type,return-value]
            for values in (file.lower_bounds, file.upper_bounds)
        )

    first, last = bounds(_PARTITION)
    return TableFile(
        file.file_path,
        file.record_count,
        file.file_size_in_bytes,
        first if first == last else None,
        *bounds(_OFFSET),
        *bounds(_TIMESTAMP),
    )


def _own_files(table: Table, directory: str, older_than_ms: int) -> Iterator[str]:
    """The addresses of old files with names of `klog lake` in a directory."""
    scheme, netloc, path = PyArrowFileIO.parse_location(directory, table.io.properties)
    store = cast(PyArrowFileIO, table.io).fs_by_scheme(scheme, netloc)
    selector = pyarrow.fs.FileSelector(path, allow_not_found=True)
    for info in store.get_file_info(selector):
        if is_own(info.base_name) and info.mtime_ns // 1_000_000 < older_than_ms:
            yield f"{directory}/{info.base_name}"


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> Iterable[ManifestFile]:
    """The manifests of some snapshots, each once."""
    found = {m.manifest_path: m for each in snapshots for m in each.manifests(table.io)}
    return found.values()


def _manifest_paths(table: Table, snapshots: Sequence[Snapshot]) -> set[str]:
    """The addresses of the manifest lists and manifests of some snapshots."""
    lists = {each.manifest_list for each in snapshots}
    return lists | {each.manifest_path for each in _manifests(table, snapshots)}
