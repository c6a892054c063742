"""Lake tables in Delta Lake's format, by delta-rs (the package deltalake)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

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
from pyspark_klog.lake_tables.durable import (
    DurableStream,
    make_directory,
    sync_directory,
    sync_file,
)
from pyspark_klog.lake_tables.errors import CommitFailed, LakeError, TableUnavailable
from pyspark_klog.lake_tables.locations import DeltaDirectory
from pyspark_klog.lake_tables.table import TableFile, WrittenFile
from pyspark_klog.records.arrow import schema_for
from pyspark_klog.records.arrow_columns import COLUMN_TYPES

_BOUNDED = ("partition", "offset", "timestamp")
"""The columns whose least and greatest values are in the log, by which engines skip files."""
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_TABLE_PROPERTIES = {
    # A load and a commit read the log from the last checkpoint on, so that both get slower with
    # each commit until the next one.
    "delta.checkpointInterval": "20",
}


class DeltaLakeTable:
    """A topic's Delta table.

    The table's configuration names the topic. The border is in the commitInfo of each commit of
    `klog lake`, and, because Delta deletes old commits after a checkpoint, also in the transaction
    versions (``txn``) of an application for each partition, which checkpoints keep.
    """

    def __init__(self, place: DeltaDirectory, name: str, options: Mapping[str, str]) -> None:
        self._path = f"{place.path.rstrip('/')}/{name}"
        self.name = f"delta:{self._path}"
        self.schema = schema_for(tuple(COLUMN_TYPES))
        self._options = dict(options)
        self._local = None if "://" in self._path else Path(self._path)
        self._table: DeltaTable | None = None

    def load(self) -> Head | None:
        """Read the newest version; None if the table does not exist yet.

        :raises LakeError: if `klog lake` has not made the table
        """
        try:
            self._table = DeltaTable(self._path, storage_options=self._options)
        except TableNotFoundError:
            self._table = None
            return None
        except Exception as error:
            raise TableUnavailable(f"{self.name} could not be read: {error}") from error
        return self.head()

    def head(self, version: int | None = None) -> Head:
        """Return the origin and the border at a version (None: at the loaded one)."""
        table = self._at(version)
        origin = self._origin(table)
        return Head(origin, *self._last_commit(table, origin))

    def _origin(self, table: DeltaTable) -> Origin:
        values = table.metadata().configuration
        if TOPIC not in values:
            raise LakeError(
                f"{self.name} has no property {TOPIC}, so that klog lake has not made it: copy the "
                "topic to another place"
            )
        return Origin(
            values.get(CLUSTER_ID) or "", values.get(TOPIC) or "", values.get(TOPIC_ID) or ""
        )

    def _last_commit(self, table: DeltaTable, origin: Origin) -> tuple[Border, int]:
        """Return the border and the time (ms) of the last commit of `klog lake` whose rows are in
        the opened version of the table.

        Both come from the table's log, version by version; at a restore the search goes on from
        the version that was restored. If Delta has deleted the commit from the log, the border
        comes from Delta's transaction versions, which `klog lake` sets in each commit, and the
        time is 0. The transaction versions alone would be wrong: a restore to an older version
        leaves them as they were before the restore.

        `DeltaTable.history` would be wrong, too: it reads the commits and the newest version
        number one after the other, and with a commit in between the numbers are not those of the
        commits.
        """
        restored = version = table.version()
        while (info := self._commit_info(version)) is not None:
            if _is_commit_for(origin, info):
                return parse_border(info[BORDER], self.name), int(info.get("timestamp", 0))
            if info.get("operation") == "RESTORE":
                restored = version = self._restored_version(info)
            else:
                version -= 1
        if restored != table.version():
            table = self._at(restored)
        return dict(_border(table, origin)), 0

    def _commit_info(self, version: int) -> Mapping[str, Any] | None:
        """Return what the commit of a version says about itself, which may be nothing; None if the
        log does not have the version any more."""
        try:
            with self._store().open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                actions = [json.loads(line) for line in stream.read().splitlines()]
        except FileNotFoundError:
            return None
        found: Iterator[Mapping[str, Any]] = (
            action["commitInfo"] for action in actions if "commitInfo" in action
        )
        return next(found, {})

    def _restored_version(self, info: Mapping[str, Any]) -> int:
        try:
            return int(info["operationParameters"]["version"])
        except (KeyError, TypeError, ValueError):
            raise LakeError(
                f"{self.name} was restored to the version of a time, and its history does not name "
                "the version: restore it once more, to the number of a version"
            ) from None

    def create(self, origin: Origin, border: Border) -> None:
        """Create the empty table, unless another writer has created it just before."""
        try:
            if self._local is not None:
                make_directory(self._local / "_delta_log")
            DeltaTable.create(
                self._path,
                self.schema,
                mode="error",
                configuration=_TABLE_PROPERTIES | _configuration(origin),
                raise_if_key_not_exists=False,
                storage_options=self._options,
                commit_properties=_properties(origin, border),
            )
        except (DeltaError, OSError) as error:
            if not DeltaTable.is_deltatable(self._path, self._options):
                raise LakeError(f"{self.name} could not be created: {error}") from error
        self._sync_log(0)

    def new_file(self, file_name: str) -> tuple[str, BinaryIO]:
        """Return the address of a new data file, and the stream that writes it."""
        if self._local is not None:
            stream: Any = DurableStream(self._local / file_name)
        else:
            stream = self._store().open_output_stream(file_name)
        return file_name, stream

    def commit(self, files: Sequence[WrittenFile], border: Border) -> None:
        """Add the files and the new border, if the newest version is still the loaded one."""
        table = self._loaded()
        self._commit(table, files, self._origin(table), border)

    def restart(self, origin: Origin, border: Border) -> None:
        """Change the origin and the border, in two commits. The border comes first: if the process
        ends between the commits, the table still names the old topic, so that `klog lake restart`
        can be repeated."""
        table = self._loaded()
        self._commit(table, (), origin, border)
        try:
            table.update_incremental()
            committed = table.version() + 1
            table.alter.set_table_properties(
                _configuration(origin),
                raise_if_not_exists=False,
                commit_properties=_properties(origin, border),
            )
        except Exception as error:
            raise CommitFailed(f"{self.name}: the commit failed: {error}") from error
        self._sync_log(committed)

    def _commit(
        self, table: DeltaTable, files: Sequence[WrittenFile], origin: Origin, border: Border
    ) -> None:
        committed = table.version() + 1
        try:
            table.create_write_transaction(
                [_add_action(file) for file in files],
                mode="append",
                schema=table.schema(),
                commit_properties=_properties(origin, border),
            )
        except Exception as error:
            raise CommitFailed(f"{self.name}: the commit failed: {error}") from error
        self._sync_log(committed)

    def _sync_log(self, version: int) -> None:
        """Make a version durable, with its checkpoint; delta-rs does not call fsync."""
        if self._local is None:
            return
        log = self._local / "_delta_log"
        for path in log.glob(f"{version:020d}.*"):
            sync_file(path)
        sync_directory(log)

    def files(self, version: int | None = None) -> list[TableFile]:
        """The data files of the table at a version (None: of the loaded one).

        :raises LakeError: if the table has deletion vectors, which `klog lake` never writes
        """
        table = self._at(version)
        if any(
            batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors())
        ):
            raise LakeError(
                f"{self.name} has deletion vectors, which klog does not apply: read it with an "
                "engine for Delta, or compact it first"
            )
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [_table_file(self._path, row) for row in rows]

    def versions(self) -> int:
        """Return the number of versions since the table was created; Delta itself forgets old ones,
        with time."""
        return self._loaded().version() + 1

    def expire(self, keep: int) -> None:
        """Do nothing, because delta-rs itself removes old versions from the log, after the time
        that the table's property delta.logRetentionDuration sets (30 days)."""

    def orphans(self, older_than_ms: int) -> list[str]:
        """Return the old files of `klog lake` that no version names."""
        table = self._loaded()
        named = {Path(uri).name for uri in table.file_uris()}
        # Older versions name the files that another program has replaced, as a compaction does.
        replaced = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
        named.update(Path(path).name for path in replaced)
        return [
            info.path
            for info in self._store().get_file_info(pyarrow.fs.FileSelector(""))
            if is_own(info.base_name)
            and info.base_name not in named
            and info.mtime_ns // 1_000_000 < older_than_ms
        ]

    def delete(self, path: str) -> None:
        """Delete one of the `orphans`."""
        self._store().delete_file(path)

    def _store(self) -> pyarrow.fs.FileSystem:
        """The table's directory."""
        if self._local is not None:
            return pyarrow.fs.SubTreeFileSystem(self._path, pyarrow.fs.LocalFileSystem())
        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self._path, self._options))

    def _loaded(self) -> DeltaTable:
        assert self._table is not None, "load the table first"
        return self._table

    def _at(self, version: int | None) -> DeltaTable:
        if version is None:
            return self._loaded()
        try:
            return DeltaTable(self._path, version=version, storage_options=self._options)
        except DeltaError as error:
            raise LakeError(
                f"{self.name} has no version {version}; its last one is "
                f"{self._loaded().version()}: {error}"
            ) from error


def _configuration(origin: Origin) -> dict[str, str]:
    return {TOPIC: origin.topic, TOPIC_ID: origin.topic_id, CLUSTER_ID: origin.cluster_id}


def _application(origin: Origin, partition: int) -> str:
    """The application id under which the border of a partition is stored."""
    return f"klog:{origin.cluster_id}:{origin.topic}:{origin.topic_id}:{partition}"


def _properties(origin: Origin, border: Border) -> CommitProperties:
    """A commit's properties. Without retries a commit fails if another program has committed since
    the table was loaded."""
    return CommitProperties(
        custom_metadata={**_configuration(origin), BORDER: border_text(border)},
        max_commit_retries=0,
        app_transactions=[
            Transaction(_application(origin, number), offset) for number, offset in border.items()
        ],
    )


def _border(table: DeltaTable, origin: Origin) -> Iterator[tuple[int, int]]:
    """The offsets by partition. Each version stores all partitions of the topic, so that the first
    number without an offset ends the border."""
    number = 0
    while (offset := table.transaction_version(_application(origin, number))) is not None:
        yield number, offset
        number += 1


def _is_commit_for(origin: Origin, info: Mapping[str, Any]) -> bool:
    """Whether a commit, by its information, is one of `klog lake` with records of this topic."""
    return BORDER in info and all(
        (info.get(name) or "") == value for name, value in _configuration(origin).items()
    )


def _add_action(file: WrittenFile) -> AddAction:
    bounds: dict[str, tuple[Any, Any]] = dict(column_bounds(file.metadata, _BOUNDED))
    if "timestamp" in bounds:
        try:
            low, high = bounds["timestamp"]
            bounds["timestamp"] = _time_text(low), _time_text(high)
        except OverflowError:  # Without bounds engines read the file for any time.
            del bounds["timestamp"]
    stats = {
        "numRecords": file.metadata.num_rows,
        "minValues": {name: low for name, (low, _) in bounds.items()},
        "maxValues": {name: high for name, (_, high) in bounds.items()},
        "nullCount": dict.fromkeys(bounds, 0),
    }
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={},
        modification_time=file.written_ms,
        data_change=True,
        stats=json.dumps(stats),
    )


def _time_text(time_us: int) -> str:
    """Return a time as Delta's statistics have it.

    :raises OverflowError: outside of the years 1 to 9999, for which the text has no form
    """
    return (_1970 + timedelta(microseconds=time_us)).isoformat(timespec="milliseconds")


def _table_file(directory: str, row: Mapping[str, Any]) -> TableFile:
    def micros(value: Any) -> int | None:
        return None if value is None else (value - _1970) // timedelta(microseconds=1)

    first, last = row.get("min.partition"), row.get("max.partition")
    return TableFile(
        f"{directory}/{row['path']}",
        cast(int, row["num_records"]),
        row["size_bytes"],
        first if first == last else None,
        row.get("min.offset"),
        row.get("max.offset"),
        micros(row.get("min.timestamp")),
        micros(row.get("max.timestamp")),
    )
