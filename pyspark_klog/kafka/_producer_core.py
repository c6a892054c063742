"""The part of a producer that its background thread knows: the client, and the reports."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from pyspark_klog.client import chance, clock
from pyspark_klog.client.cluster.evented_client import EventedClient
from pyspark_klog.client.producer.evented_producer import EventedProducer
from pyspark_klog.client.producer.out_records import OutRecord
from pyspark_klog.client.security.preparation import Preparation
from pyspark_klog.client.transport.tcp_connector import TcpConnector
from pyspark_klog.client.transport.thread_loop import ThreadLoop
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.kafka._error_mapping import kafka_error
from pyspark_klog.kafka._errors import KafkaError
from pyspark_klog.kafka._message import Message
from pyspark_klog.kafka._out_values import producer_settings, size_of
from pyspark_klog.kafka._settings import KafkaSettings

_log = logging.getLogger(__name__)

DeliveryCallback = Callable[[KafkaError | None, Message], None]
_CREATE_TIME, _LOG_APPEND_TIME = 1, 2


class Report:
    """The part of a record that its report needs, until the caller calls `poll`."""

    __slots__ = ("began_ms", "callback", "topic")

    def __init__(self, topic: str, callback: DeliveryCallback | None, began_ms: int) -> None:
        self.topic = topic
        self.callback = callback
        self.began_ms = began_ms


class ProducerCore:
    """The producer's part that its background thread knows: the thread must not keep a `Producer`
    alive that the program has dropped."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.only_errors = settings.flag("delivery.report.only.error")
        self.changed = threading.Condition()
        self.unfinished = 0
        """The records whose outcome is not known yet."""
        self.bytes = 0
        self.reports: deque[tuple[DeliveryCallback, KafkaError | None, Message]] = deque()
        self.failure: BaseException | None = None
        self.loop = ThreadLoop("klog-producer", on_failure=self._on_failure)
        client_settings = settings.client_settings
        self.client = EventedClient(
            client_settings,
            loop=self.loop,
            connector=TcpConnector(client_settings),
            prepare=Preparation(client_settings.security, self.loop.post).prepare,
            random=chance.fraction,
            on_metadata=self._on_metadata,
            on_failure=self._on_metadata_failure,
            may_create_topics=client_settings.flag("allow.auto.create.topics"),
        )
        self.producer = EventedProducer(
            self.client,
            producer_settings(settings),
            self,
            loop=self.loop,
            random=chance.fraction,
        )
        self._given: deque[tuple[str, int, OutRecord, int]] = deque()
        self._is_posted = False

    # --- the caller's threads --------------------------------------------------------------------
    def give(self, topic: str, partition: int, record: OutRecord, size_bytes: int) -> None:
        """Hand a record to the background thread."""
        self._given.append((topic, partition, record, size_bytes))
        if not self._is_posted:
            self._is_posted = True
            self.loop.post(self._take_given)

    # --- the background thread -------------------------------------------------------------------
    def _take_given(self) -> None:
        # Reset the flag first: a record that is given from now on posts again.
        self._is_posted = False
        for _ in range(len(self._given)):
            self.producer.append(*self._given.popleft())

    def _on_metadata(self) -> None:
        self.producer.on_metadata()

    def _on_metadata_failure(self, error: KlogError) -> None:
        _log.info("asking for the cluster's metadata failed: %s", error)

    def _on_failure(self, error: BaseException) -> None:
        with self.changed:
            self.failure = error
            self.changed.notify_all()

    def on_written(
        self,
        partition: TopicPartition,
        records: Sequence[OutRecord],
        base_offset: int,
        append_time_ms: int,
    ) -> None:
        """Report written records."""
        now_ms = clock.monotonic_ms()
        for number, record in enumerate(records):
            report = cast("Report", record.context)
            if report.callback is None or self.only_errors:
                continue
            offset = base_offset + number if base_offset >= 0 else None
            time = (_CREATE_TIME, record.timestamp_ms)
            if append_time_ms >= 0:
                time = (_LOG_APPEND_TIME, append_time_ms)
            latency_s = (now_ms - report.began_ms) / 1000
            message = _message(partition, record, offset, None, time, latency_s)
            self.reports.append((report.callback, None, message))
        self._finish(records)

    def on_failed(
        self, partition: TopicPartition, records: Sequence[OutRecord], error: KlogError
    ) -> None:
        """Report records that have failed."""
        now_ms = clock.monotonic_ms()
        found = kafka_error(error)
        for record in records:
            report = cast("Report", record.context)
            if report.callback is None:
                continue
            time = (_CREATE_TIME, record.timestamp_ms)
            latency_s = (now_ms - report.began_ms) / 1000
            message = _message(partition, record, None, found, time, latency_s)
            self.reports.append((report.callback, found, message))
        self._finish(records)

    def _finish(self, records: Sequence[OutRecord]) -> None:
        size_bytes = sum(size_of(record) for record in records)
        with self.changed:
            self.unfinished -= len(records)
            self.bytes -= size_bytes
            self.changed.notify_all()


def end(core: ProducerCore) -> None:
    """End the thread of a producer that was closed, that the program has dropped, or that is left
    at the end of the process."""
    with core.changed:
        unsent = core.unfinished
    if unsent:
        _log.warning(
            "a producer ended with %d records that are not acknowledged: call flush() or close() "
            "before the program ends",
            unsent,
        )
    if core.loop.is_running:
        core.loop.post(core.client.close)
    core.loop.stop(5)


def _message(
    partition: TopicPartition,
    record: OutRecord,
    offset: int | None,
    error: KafkaError | None,
    time: tuple[int, int],
    latency_s: float,
) -> Message:
    return Message(
        partition.topic,
        partition.partition,
        offset,
        record.key,
        record.value,
        list(record.headers) or None,
        error,
        time,
        latency_s,
    )
