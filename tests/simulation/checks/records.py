"""No promised record is lost, and none is doubled, out of order, changed or made up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.control import control_type_of
from pyspark_klog.records.record import Record
from tests.simulation.machine import Death, Machine, Watcher
from tests.simulation.plan import TopicPlan
from tests.simulation.world import Violation, World
from tests.support.log.harness import read_batches

LOST = "nothing acknowledged is lost"
CHANGED = "a record stays what it is"
DOUBLED = "nothing is doubled"
ORDER = "a producer's records stay in order"
EPOCHS = "after an unclean end a new epoch begins"

_MARKER = b"!"
_NEVER = 1 << 60


@dataclass
class _Partition:
    is_flushed: bool
    keys: int
    """The number of keys of a compacted partition (superseded records may go); 0 for others."""
    seen: dict[int, bytes] = field(default_factory=dict)
    """Names of records by offset, from acknowledgements, deliveries, and inspections of the log."""
    start: int = 0
    promised_end: int = 0
    """The end of all records that were acknowledged, delivered, or lie before such a record."""
    flushed_claim: int = 0
    """The flushed offset that the broker knew when it died."""
    end_at_death: int = 0
    epoch_at_death: int = -1
    was_offline: bool = False
    was_closed: bool = False
    """Whether the broker was about to stop when it died, and had flushed the whole log.

    Its directory may have its clean marker already.
    """
    doubtful: set[bytes] = field(default_factory=set)
    """Records that may be lost, and that clients unaware of the loss may still report."""
    lost_from: int = _NEVER
    """The lowest offset that may be lost."""


@dataclass(frozen=True)
class _Sent:
    partition: TopicPartition
    producer: str
    number: int
    is_idempotent: bool
    timestamp_ms: int


class Records(Watcher):
    """All that is known of the topics' records."""

    def __init__(self, world: World, topics: Iterable[TopicPlan]) -> None:
        self._world = world
        self._known_ms: dict[bytes, int] = {}
        self._partitions = {
            TopicPartition(topic.name, number): _Partition(topic.is_flushed, topic.keys)
            for topic in topics
            for number in range(topic.partitions)
        }
        self._sent: dict[bytes, _Sent] = {}
        self._sent_by: defaultdict[tuple[TopicPartition, str], set[bytes]] = defaultdict(set)
        self._attempts: Counter[bytes] = Counter()
        self._acknowledged: set[bytes] = set()
        self._forgiven: set[bytes] = set()
        self._excused: set[bytes] = set()
        self._doubtful: dict[tuple[TopicPartition, str], int] = {}
        """By partition and producer: the last number that the broker may have forgotten."""
        self.acknowledged = 0
        self.delivered = 0
        self.lost_as_allowed = 0
        self.power_cuts = 0
        self.on_acknowledged: Callable[[TopicPartition, int], None] = lambda _partition, _end: None
        """Called with the end offset of acknowledged records."""

    # --- reports of clients -----------------------------------------------------------------------
    def is_sending(
        self,
        partition: TopicPartition,
        producer: str,
        numbers: Sequence[int],
        idempotent: bool,
        timestamp_ms: int,
    ) -> None:
        """A producer sends these records, perhaps again."""
        for number in numbers:
            value = value_of(producer, number)
            self._sent[value] = _Sent(partition, producer, number, idempotent, timestamp_ms)
            self._sent_by[partition, producer].add(value)
            self._attempts[value] += 1
            if (partition, producer) in self._doubtful and value not in self._acknowledged:
                # An earlier batch may be refused; the producer's new epoch would repeat this one,
                # too.
                self._excused.add(value)

    def was_acknowledged(
        self, partition: TopicPartition, offset: int, producer: str, numbers: Sequence[int]
    ) -> None:
        """These records have got their final offsets."""
        known = self._partitions[partition]
        for index, number in enumerate(numbers):
            value = value_of(producer, number)
            self._see(partition, known, offset + index, value, "acknowledged")
            self._acknowledged.add(value)
            self._known_ms.setdefault(value, self._world.now_ms)
            if value not in known.doubtful:
                known.promised_end = max(known.promised_end, offset + index + 1)
        if numbers[-1] >= self._doubtful.get((partition, producer), numbers[-1] + 1):
            del self._doubtful[partition, producer]
        self.acknowledged += len(numbers)
        self.on_acknowledged(partition, offset + len(numbers))

    def was_delivered(self, partition: TopicPartition, offset: int, value: bytes) -> int:
        """A consumer has read this record. Return since when the record is known to be there."""
        known = self._partitions[partition]
        self._see(partition, known, offset, value, "delivered")
        if _name(value) not in known.doubtful:
            known.promised_end = max(known.promised_end, offset + 1)
        self.delivered += 1
        return self._known_ms.setdefault(_name(value), self._world.now_ms)

    def lies_in_the_end(self, partition: TopicPartition, found: dict[int, bytes]) -> None:
        """All records of a partition at the end of the run."""
        known = self._partitions[partition]
        for offset, value in found.items():
            self._see(partition, known, offset, value, "in the log")
        for offset, value in known.seen.items():
            if offset not in found and value not in known.doubtful:
                raise Violation(LOST, f"{partition} offset {offset}: {value!r} is gone")
        known.seen = {offset: _name(value) for offset, value in found.items()}

    def may_be_lost(self, partition: TopicPartition, end: int) -> None:
        """Power cuts have taken the records at ``end`` and behind.

        Each record sent so far that is not known to lie before ``end`` may be lost. Clients that do
        not know of the loss may still report it.
        """
        known = self._partitions.get(partition)
        if known is None:
            return
        kept = {value for offset, value in known.seen.items() if offset < end}
        for value, sent in self._sent.items():
            if sent.partition == partition and value not in kept:
                known.doubtful.add(value)
                # The broker may have lost the producer's state, so that the producer begins a new
                # epoch. Or the log accepts a batch in flight at any sequence, and refuses the
                # batches before it.
                self._excuse(value)
                self._doubt(sent)
        self._forgiven |= known.doubtful
        self.lost_as_allowed += max(known.promised_end - end, 0)
        known.seen = {offset: value for offset, value in known.seen.items() if offset < end}
        known.promised_end = min(known.promised_end, end)
        known.lost_from = min(known.lost_from, end)

    def lost_from(self, partition: TopicPartition) -> int:
        """The first offset whose record may have been another one before a loss."""
        return self._partitions[partition].lost_from

    def was_found(self, partition: TopicPartition, offset: int, name: bytes) -> None:
        """The record was found in the log as it was appended."""
        self._see(partition, self._partitions[partition], offset, name, "appended")

    def _see(
        self, partition: TopicPartition, known: _Partition, offset: int, value: bytes, how: str
    ) -> None:
        value = _name(value)
        before = known.seen.setdefault(offset, value)
        if before != value and before in known.doubtful and offset >= known.lost_from:
            known.seen[offset] = before = value
        if before != value and not (value in known.doubtful and offset >= known.lost_from):
            raise Violation(
                CHANGED, f"{partition} offset {offset} was {before!r}, now {value!r} is {how}"
            )
        sent = self._sent.get(value)
        if not is_marker(value) and (sent is None or sent.partition != partition):
            raise Violation(CHANGED, f"{partition} offset {offset}: nobody sent {value!r} there")

    def begins_at(self, partition: TopicPartition, offset: int) -> None:
        """The log starts at ``offset`` now: retention has removed the earlier records.

        A producer without a response may send a removed record again. The broker that received it
        knows it; a broker that has started since knows only the last batch from its snapshot, as
        Kafka does, and finds the others in the log.
        """
        known = self._partitions.get(partition)
        if known is None:
            return
        if offset > known.start:
            for value, sent in self._sent.items():
                if sent.partition == partition:
                    self._excuse(value)
        known.start = offset

    def excuse(self, names: Iterable[bytes]) -> None:
        """The broker may not recognize these records if they are sent again.

        Their producers then begin new epochs, and repeat the batches in flight behind them, too.
        """
        sent = [self._sent[name] for name in names if name not in self._acknowledged]
        for producer in {(each.partition, each.producer) for each in sent}:
            for value in self._sent_by[producer]:
                self._excuse(value)

    def _excuse(self, value: bytes) -> None:
        if value not in self._acknowledged:
            sent = self._sent[value]
            self._excused.add(value)
            self._doubt(sent)

    def _doubt(self, sent: _Sent) -> None:
        """The broker may have forgotten the sent record's producer up to this number."""
        key = sent.partition, sent.producer
        self._doubtful[key] = max(self._doubtful.get(key, -1), sent.number)

    def producers_expire(self) -> None:
        """The broker may forget idle producers, and with them their last batches."""
        for value in self._sent:
            self._excuse(value)

    def keys_of(self, partition: TopicPartition) -> int:
        """The number of keys of a compacted topic; else 0."""
        return self._partitions[partition].keys

    def start_of(self, partition: TopicPartition) -> int:
        """The partition's log start offset."""
        return self._partitions[partition].start

    def timestamp_at(self, partition: TopicPartition, offset: int) -> int | None:
        """The timestamp of the record at ``offset``; None if it is not known."""
        known = self._partitions.get(partition)
        value = None if known is None else known.seen.get(offset)
        sent = None if value is None else self._sent.get(value)
        return None if sent is None else sent.timestamp_ms

    def promised_end(self, partition: TopicPartition) -> int:
        """The end of the records that must be readable or removed by retention."""
        return self._partitions[partition].promised_end

    # --- events of the machine --------------------------------------------------------------------
    def on_death(self, machine: Machine, death: Death) -> None:
        self.power_cuts += death is Death.POWER
        for log in machine.logs():
            known = self._partitions.get(log.topic_partition)
            if known is not None:
                known.flushed_claim = log.flushed_offset
                known.end_at_death = log.log_end_offset
                known.epoch_at_death = log.leader_epoch
                known.was_offline = log.is_offline
                is_whole = log.flushed_offset == log.log_end_offset
                known.was_closed = machine.is_stopping and is_whole

    def on_start(self, machine: Machine) -> None:
        deaths = machine.deaths_before_start
        if deaths:
            self.look(machine, deaths)

    def look(self, machine: Machine, deaths: Sequence[Death] = ()) -> None:
        """Compare the logs with what is known."""
        logs = {log.topic_partition: log for log in machine.logs()}
        for partition, known in self._partitions.items():
            log = logs.get(partition)
            if log is None:
                # The partition's directory may have failed while the log was loaded.
                if known.seen and not machine.files.has_failed_sync:
                    raise Violation(LOST, f"{partition} is gone")
                continue
            if log.is_offline:
                continue
            found = content(log)
            end, start = int(log.log_end_offset), int(log.log_start_offset)
            if not known.keys and sorted(found) != list(range(start, end)):
                raise Violation(LOST, f"{partition} has gaps between {start} and {end}")
            self._check_end(partition, known, end, deaths)
            # Death.DISK may mean the other directory.
            is_killed = any(each in (Death.KILL, Death.POWER) for each in deaths)
            is_unclean = is_killed and not known.was_closed
            is_unclean |= known.was_offline and Death.DISK in deaths
            if is_unclean and log.leader_epoch <= known.epoch_at_death:
                raise Violation(EPOCHS, f"{partition} goes on in {log.leader_epoch}")
            for offset, value in found.items():
                self._see(partition, known, offset, value, "in the log")
            for offset, value in () if known.keys else known.seen.items():
                if offset >= start and offset < known.promised_end and offset not in found:
                    raise Violation(LOST, f"{partition} offset {offset}: {value!r} is gone")
            kept_end = end if known.keys else start
            known.seen = {**{o: v for o, v in known.seen.items() if o < kept_end}, **found}

    def _check_end(
        self, partition: TopicPartition, known: _Partition, end: int, deaths: Sequence[Death]
    ) -> None:
        text = f"{partition} ends at {end} after {', '.join(each.value for each in deaths)}"
        has_lost_power = Death.POWER in deaths
        if has_lost_power and end < known.flushed_claim:
            raise Violation(LOST, f"{text}; the broker had flushed {known.flushed_claim}")
        if end >= known.promised_end:
            pass
        elif known.is_flushed or not has_lost_power:
            raise Violation(LOST, f"{text}; {known.promised_end} were acknowledged or read")
        else:
            self.lost_as_allowed += known.promised_end - end
            self._forgiven |= {v for o, v in known.seen.items() if o >= end}
            known.promised_end = end
        if Death.CLEAN in deaths and len(deaths) == 1 and end != known.end_at_death:
            raise Violation(LOST, f"{text}; it had ended at {known.end_at_death}")
        known.seen = {o: v for o, v in known.seen.items() if o < end}

    # --- the end ---------------------------------------------------------------------------------
    def finish(self, machine: Machine) -> None:
        """Every record was sent and acknowledged: check the logs once more."""
        self.look(machine)
        self.count()

    def count(self) -> None:
        """Check that the logs, when last seen, had all acknowledged records, once and in order."""
        count: Counter[bytes] = Counter()
        for partition, known in self._partitions.items():
            last: dict[str, int] = {}
            for offset in sorted(known.seen):
                value = known.seen[offset]
                if is_marker(value):
                    continue
                count[value] += 1
                sent = self._sent[value]
                if value in self._excused:
                    continue
                if sent.is_idempotent and sent.number < last.get(sent.producer, -1):
                    raise Violation(ORDER, f"{partition} has {value!r} at {offset}, too late")
                last[sent.producer] = sent.number
        for value, sent in self._sent.items():
            is_once = sent.is_idempotent and value not in self._excused
            most = 1 if is_once else self._attempts[value]
            if count[value] > most:
                raise Violation(DOUBLED, f"{value!r} is {count[value]} times in {sent.partition}")
            if value in self._acknowledged and not count[value] and value not in self._forgiven:
                raise Violation(LOST, f"{value!r} is not in {sent.partition}")


def value_of(producer: str, number: int) -> bytes:
    """The beginning of a record's value, which names it; padding may follow."""
    return f"{producer}:{number};".encode()


def _name(value: bytes) -> bytes:
    return value[: value.index(b";") + 1]


def name_of(record: Record) -> bytes:
    """The name of a client's record: in its value, or in a header if it has no value."""
    if record.value is None:
        return record.headers[0].value or b""
    return _name(record.value)


def is_marker(name: bytes) -> bool:
    """Whether this is the name of a transaction marker, not of a client's record."""
    return name.startswith(_MARKER)


def names_in(batch: BatchView) -> list[tuple[int, bytes]]:
    """The names of the batch's records or marker, each with its offset."""
    if not batch.is_control:
        return [(each.offset, name_of(each)) for each in batch.records()]
    return [
        (each.offset, marker_name(batch.producer_id, control_type_of(each.key).name))
        for each in batch.records()
    ]


def marker_name(producer_id: int, kind: str) -> bytes:
    """The name of a transaction marker; markers of one producer and kind share it."""
    return b"%s%d:%s;" % (_MARKER, producer_id, kind.encode())


def batches_in(data: bytes, where: str) -> list[BatchView]:
    """The batches of a record set, each whole and undamaged."""
    try:
        batches = list(split_batches(data, allow_partial=True))
        for each in batches:
            each.check_crc()
    except KlogError as error:
        raise Violation(CHANGED, f"{where}: {error}") from error
    return batches


def content(log: Any) -> dict[int, bytes]:
    """The names of all records and markers in a log, by offset."""
    start = log.log_start_offset
    try:
        return {
            offset: name
            for batch in read_batches(log, log.log_end_offset)
            for offset, name in names_in(batch)
            if offset >= start
        }
    except KlogError as error:
        raise Violation(CHANGED, f"{log.topic_partition}: {error}") from error
