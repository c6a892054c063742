"""Converts record sets to columns of Python values: large ones with pyarrow (if installed) and
klog's compiled kernels, others record by record."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from klog_broker.cli.common.damaged_records import damage_named
from pyspark_klog.client.consumer.continuous_reader import Fetched
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record import Record
from pyspark_klog.records.record_sets import entries

if TYPE_CHECKING:
    from pyarrow import RecordBatch

MUCH_BYTES = 256 * 1024
"""Record sets from this size on are read with pyarrow (if it is installed) and klog's compiled
kernels, which take a second to load."""
_ROWS = 10_000

Headers = Sequence[tuple[str, bytes | None]]
_COLUMNS = {"timestamp_type": "timestampType"}


@dataclass(slots=True)
class Columns:
    """Some records of one partition, in order; a column that was not requested is empty."""

    partition: TopicPartition
    offsets: Sequence[int]
    timestamps_ms: Sequence[int] = ()
    timestamp_types: Sequence[int] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    headers: Sequence[Headers] = ()

    def up_to(self, count: int) -> "Columns":
        """Return the first ``count`` records."""
        return Columns(
            self.partition,
            self.offsets[:count],
            self.timestamps_ms[:count],
            self.timestamp_types[:count],
            self.keys[:count],
            self.values[:count],
            self.headers[:count],
        )


class RecordReader:
    """Reads fetched records. ``wanted`` has the names of columns; offsets are always read."""

    def __init__(self, wanted: Collection[str], *, check_crcs: bool) -> None:
        names = ("timestamp", "timestamp_type", "key", "value", "headers")
        self._wanted = ["offset", *(name for name in names if name in wanted)]
        self._check_crcs = check_crcs
        self._has_arrow = find_spec("pyarrow") is not None

    def read(self, fetched: Fetched) -> Iterator[Columns]:
        """Yield the records from ``fetched.start`` on, without control records and (under
        read_committed) records of aborted transactions.

        :raises RecordsError: if the bytes are not valid records
        """
        if self._has_arrow and len(fetched.data) >= MUCH_BYTES:
            return self._by_kernels(fetched)
        return self._one_by_one(fetched)

    # --- large record sets: read with pyarrow ----------------------------------------------------
    def _by_kernels(self, fetched: Fetched) -> Iterator[Columns]:
        from pyspark_klog.records.arrow import ArrowDecoder, MalformedTimestamp

        decoder = ArrowDecoder(
            topic=fetched.partition.topic,
            partition=fetched.partition.partition,
            columns=[_COLUMNS.get(name, name) for name in self._wanted],
            start_offset=fetched.start,
            check_crc=self._check_crcs,
            max_rows=_ROWS,
        )
        next_offset = fetched.start
        try:
            for batch in decoder.decode(fetched.data, fetched.aborted):
                columns = self._of_arrow(fetched.partition, batch)
                next_offset = columns.offsets[-1] + 1
                yield columns
            rest = decoder.flush()
            if rest is not None:
                yield self._of_arrow(fetched.partition, rest)
        except MalformedTimestamp:
            # Arrow holds timestamps until January of the year 294,247; Python's integers can hold
            # later ones. Read the rest of the record set record by record.
            yield from self._one_by_one(fetched._replace(start=next_offset))

    def _of_arrow(self, partition: TopicPartition, batch: "RecordBatch") -> Columns:
        found: dict[str, Any] = {
            name: batch.column(place) for place, name in enumerate(self._wanted)
        }
        columns = Columns(partition, found["offset"].to_pylist())
        if "timestamp" in found:
            micros = found["timestamp"].cast("int64").to_numpy()
            columns.timestamps_ms = (micros // 1_000).tolist()
        if "timestamp_type" in found:
            columns.timestamp_types = found["timestamp_type"].to_pylist()
        if "key" in found:
            columns.keys = found["key"].to_pylist()
        if "value" in found:
            columns.values = found["value"].to_pylist()
        if "headers" in found:
            columns.headers = [
                [(each["key"], each["value"]) for each in headers or ()]
                for headers in found["headers"].to_pylist()
            ]
        return columns

    # --- small record sets: read record by record ------------------------------------------------
    def _one_by_one(self, fetched: Fetched) -> Iterator[Columns]:
        with damage_named(fetched):
            yield from self._entry_by_entry(fetched)

    def _entry_by_entry(self, fetched: Fetched) -> Iterator[Columns]:
        records: list[Record] = []
        shows = _shown_by(fetched)
        position = 0
        for entry in entries(fetched.data, allow_partial=True):
            if self._check_crcs:
                entry.check_crc()
            is_shown = shows(entry, position)
            position += entry.size_bytes
            if not is_shown or entry.is_control:
                continue
            for record in entry.records():
                if record.offset >= fetched.start:
                    records.append(record)
                if len(records) >= _ROWS:
                    yield self._of_records(fetched.partition, records)
                    records = []
        if records:
            yield self._of_records(fetched.partition, records)

    def _of_records(self, partition: TopicPartition, records: list[Record]) -> Columns:
        columns = Columns(partition, [each.offset for each in records])
        wanted = self._wanted
        if "timestamp" in wanted:
            columns.timestamps_ms = [each.timestamp_ms for each in records]
        if "timestamp_type" in wanted:
            columns.timestamp_types = [int(each.timestamp_type) for each in records]
        if "key" in wanted:
            columns.keys = [each.key for each in records]
        if "value" in wanted:
            columns.values = [each.value for each in records]
        if "headers" in wanted:
            columns.headers = [[(name, value) for name, value in each.headers] for each in records]
        return columns


def _shown_by(fetched: Fetched) -> Callable[[BatchView | LegacyView, int], bool]:
    """Return a function that tells whether the records of a batch, which begins at a position in
    the fetched bytes, are shown: the batch is not part of an aborted transaction."""
    if not fetched.aborted:
        return lambda entry, position: True  # noqa: ARG005
    from pyspark_klog.records.aborted_transactions import AbortedFilter

    aborted = AbortedFilter(fetched.data, fetched.aborted)

    def shows(entry: BatchView | LegacyView, position: int) -> bool:
        if isinstance(entry, LegacyView):
            return True  # formats v0 and v1 have no transactions
        return aborted.is_committed(
            entry.producer_id, entry.last_offset, entry.attributes, position
        )

    return shows
