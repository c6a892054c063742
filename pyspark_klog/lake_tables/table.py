"""The interface of a lake table, which iceberg.py and delta.py implement for their formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_klog.lake_tables.border import Border, Head, Origin


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete Parquet file that is not part of any version of the table yet."""

    path: str
    """The address of the file, as `LakeTable.new_file` has returned it."""
    size_bytes: int
    written_ms: int
    """When the file was complete, in milliseconds since 1970."""
    metadata: pq.FileMetaData


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that a version of the table names."""

    path: str
    records: int
    size_bytes: int
    partition: int | None
    """The number of the one partition whose records the file has. The following bounds are those of
    its rows. All of them are None if the file's statistics do not tell, as with files that another
    program has written."""
    first_offset: int | None
    last_offset: int | None
    first_time_us: int | None
    last_time_us: int | None
    """Timestamps in microseconds since 1970."""


class LakeTable(Protocol):
    """One topic's table. Its methods see the version that `load` has read last."""

    name: str
    """The table's address, for messages."""
    schema: pa.Schema
    """The Arrow schema of the table's Parquet files."""

    def load(self) -> Head | None:
        """Read the table's newest version; None if the table does not exist yet.

        :raises LakeError: if the table exists, but `klog lake` has not made it
        """

    def create(self, origin: Origin, border: Border) -> None:
        """Create the empty table, unless another writer has created it just before."""

    def new_file(self, file_name: str) -> tuple[str, BinaryIO]:
        """Return the address of a new data file, and a stream that writes it. When the stream is
        closed, the bytes have reached the disk."""

    def commit(self, files: Sequence[WrittenFile], border: Border) -> None:
        """Make the next version: the files and the new border, if the newest version is still the
        one that `load` has read.

        :raises CommitFailed: after any error, even if the commit may have succeeded. Only `load`
            tells whether it has.
        """

    def restart(self, origin: Origin, border: Border) -> None:
        """Make the next version: another origin and its border, if the newest version is still the
        one that `load` has read.

        :raises CommitFailed: as `commit` raises it
        """

    def files(self) -> list[TableFile]:
        """The data files of the version that `load` has read."""

    def versions(self) -> int:
        """How many versions (Iceberg: snapshots) of the table can still be read."""

    def expire(self, keep: int) -> None:
        """Forget old versions now and then, so that about ``keep`` are left. No data file of the
        newest version is concerned.

        :raises LakeError: if this fails, or another program has committed at the same time
        """

    def orphans(self, older_than_ms: int) -> list[str]:
        """The addresses of files that `klog lake` has written, that are older than a time (in ms
        since 1970), and that no version of the table names."""

    def delete(self, path: str) -> None:
        """Delete one of the `orphans`."""
