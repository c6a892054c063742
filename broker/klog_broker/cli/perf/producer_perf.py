"""Measures writing for `klog perf produce`."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from klog_broker.cli.common.progress import Advance
from klog_broker.cli.perf.batches import BatchSource
from klog_broker.cli.perf.figures import Flow, Latencies, latency_figures
from pyspark_klog.client.clock import epoch_ms, monotonic_s
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.producer.batches import Batch
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

PrintFigures = Callable[[dict[str, float]], None]
"""Called at most every PRINT_EVERY_S seconds with the figures since the last call: counts and
rates, and for writes latencies."""
PRINT_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How many records to write, the most records in each batch, and the most records per second
    (None: no limit)."""

    records: int
    batch_records: int
    records_per_second: float | None


class _Meter:
    """Counts acknowledged records (with acks=0: sent records) and their latencies."""

    def __init__(self, advance: Advance, say: PrintFigures) -> None:
        self.start_s = monotonic_s()
        self._advance = advance
        self._say = say
        self._all, self._all_latencies = Flow(self.start_s), Latencies()
        self._while, self._while_latencies = Flow(self.start_s), Latencies()
        self._under_way: dict[TopicPartition, deque[tuple[float, int, int]]] = {}
        """By partition: the batches that are not acknowledged yet, in the order of sending. Each
        has the time at which the producer got it, its number of records, and the bytes of their
        values."""

    def given(self, partition: TopicPartition, records: int, size_bytes: int) -> None:
        """Record that the producer gets a batch now."""
        queue = self._under_way.setdefault(partition, deque())
        queue.append((monotonic_s(), records, size_bytes))

    def written(self, batch: Batch) -> None:
        """Count a batch as acknowledged. If the broker refuses a batch as too large, the producer
        splits the batch, and this method is called for each part."""
        now_s = monotonic_s()
        queue = self._under_way[batch.partition]
        left = batch.record_count
        while left:
            since_s, records, size_bytes = queue.popleft()
            some = min(left, records)
            some_bytes = size_bytes * some // records
            if some < records:
                queue.appendleft((since_s, records - some, size_bytes - some_bytes))
            left -= some
            for latencies in (self._all_latencies, self._while_latencies):
                latencies.add((now_s - since_s) * 1_000, some)
            self._all.add(some, some_bytes)
            self._while.add(some, some_bytes)
        self._advance(batch.record_count)
        if now_s - self._while.start_s >= PRINT_EVERY_S:
            self._say(self._while.figures(now_s) | latency_figures(self._while_latencies))
            self._while, self._while_latencies = Flow(now_s), Latencies()

    def figures(self) -> dict[str, float]:
        """Return the count, rate and latencies of all acknowledged records."""
        return self._all.figures(monotonic_s()) | latency_figures(self._all_latencies)


def measure_writing(
    client: BlockingClient,
    topic: str,
    batches: BatchSource,
    pace: Pace,
    advance: Advance,
    say: PrintFigures,
) -> dict[str, float]:
    """Write records to all partitions in turn until all are acknowledged, or until Ctrl-C. Return
    the figures: count, rate and latencies.

    :raises KlogError: if the topic does not exist, or if records could not be written
    """
    producer = Producer(client)
    partitions = [TopicPartition(topic, each) for each in range(producer.partition_count(topic))]
    # Make the first batch now, because work that only the first batch causes must not be measured.
    batches.next_batch(min(pace.batch_records, pace.records), 0)
    meter = _Meter(advance, say)
    producer.on_written(meter.written)
    sent = number = 0
    try:
        while sent < pace.records:
            if pace.records_per_second is not None:
                _wait(client, producer, meter.start_s + sent / pace.records_per_second)
            count = min(pace.batch_records, pace.records - sent)
            batch, size_bytes = batches.next_batch(count, epoch_ms())
            partition = partitions[number % len(partitions)]
            meter.given(partition, count, size_bytes)
            producer.add(partition, batch, count)
            sent += count
            number += 1
        producer.flush()
    except KeyboardInterrupt:
        producer.flush()
    except KlogError as error:
        acknowledged = f"{producer.written_records} of {sent} records were acknowledged"
        raise KlogError(f"{error}\n{acknowledged}") from error
    return meter.figures()


def _wait(client: BlockingClient, producer: Producer, until_s: float) -> None:
    wait_ms = int((until_s - monotonic_s()) * 1_000)
    if wait_ms > 0:
        producer.handle_responses_until(client.now_ms() + wait_ms)
