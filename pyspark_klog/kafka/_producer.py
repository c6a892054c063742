"""Producer: writes records from any thread, and reports on them in the caller's `poll`."""

from __future__ import annotations

import threading
import weakref
from operator import index
from typing import Any

from pyspark_klog.client import clock
from pyspark_klog.client.producer.out_records import ANY_PARTITION, OutRecord
from pyspark_klog.kafka._errors import KafkaError, KafkaException
from pyspark_klog.kafka._headers import Headers
from pyspark_klog.kafka._out_values import bytes_of, check_message, header_list, size_of
from pyspark_klog.kafka._producer_core import DeliveryCallback, ProducerCore, Report, end
from pyspark_klog.kafka._settings import read_settings


class Producer:
    """Writes records to Kafka in the background.

    ``Producer({"bootstrap.servers": "host:9092", ...})``: the settings are those of librdkafka and
    of Java's producer. `produce` queues a record and returns at once. A background thread sends it;
    its delivery report is a call of ``callback(error, message)`` in a later `poll` or `flush`. All
    threads of a process may use one producer; a process that was forked makes its own.

    :raises KafkaException: _INVALID_ARG, for a wrong setting
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = read_settings("producer", args, kwargs)
        settings.warn()
        settings.log_differing_defaults()
        self._core = ProducerCore(settings)
        self._on_delivery = settings.callbacks.get("on_delivery")
        self._most_records = settings.number("queue.buffering.max.messages")
        self._most_bytes = settings.client_settings.number("buffer.memory")
        self._most_record_bytes = settings.number("max.request.size")
        self._block_s = (
            settings.number("max.block.ms") / 1000 if settings.is_given("max.block.ms") else 0.0
        )
        self._is_closed = False
        self._core.loop.start()
        self._end = weakref.finalize(self, end, self._core)

    # --- records ---------------------------------------------------------------------------------
    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = ANY_PARTITION,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Queue a record. ``timestamp`` is in ms since 1970 (0: now).

        The delivery report goes to ``callback``, ``on_delivery`` or the setting on_delivery.

        :raises BufferError: if queue.buffering.max.messages or the limits of bytes are reached,
            with max.block.ms after this time
        :raises KafkaException: MSG_SIZE_TOO_LARGE for a record above message.max.bytes
        :raises RuntimeError: after `close`
        """
        self._check_open()
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        record = OutRecord(
            bytes_of(key),
            bytes_of(value),
            header_list(headers),
            index(timestamp) or clock.epoch_ms(),
            Report(topic, callback or on_delivery or self._on_delivery, clock.monotonic_ms()),
        )
        size_bytes = size_of(record)
        if size_bytes > self._most_record_bytes:
            text = (
                f"a record of about {size_bytes} bytes is larger than message.max.bytes, "
                f"{self._most_record_bytes}"
            )
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, text))
        number = max(index(partition), ANY_PARTITION)
        self._reserve(size_bytes)
        self._core.give(topic, number, record, size_bytes)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = ANY_PARTITION,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Queue records, each a dict with value, key, partition, timestamp, headers and callback,
        all of them optional. Return how many are queued: a dict whose record is not (the queue is
        full, or the record too large) gets the error as ``_error``.

        :raises TypeError: before any record is queued, if a dict has a value of a wrong type
        """
        self._check_open()
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        for number, message in enumerate(messages):
            check_message(number, message)
        queued = 0
        for message in messages:
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    partition if message.get("partition") is None else message["partition"],
                    message.get("callback") or callback,
                    on_delivery,
                    message.get("timestamp") or 0,
                    message.get("headers"),
                )
                queued += 1
            except BufferError as error:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL, str(error))
            except KafkaException as error:
                message["_error"] = error.args[0]
        return queued

    def _reserve(self, size_bytes: int) -> None:
        core = self._core
        with core.changed:

            def has_room() -> bool:
                return (
                    not self._most_records or core.unfinished < self._most_records
                ) and core.bytes + size_bytes <= self._most_bytes

            if not has_room() and not core.changed.wait_for(has_room, self._block_s):
                raise BufferError(
                    f"Local: Queue full: {core.unfinished} records with {core.bytes} bytes wait; "
                    "call poll() or flush(), or raise queue.buffering.max.messages or "
                    "queue.buffering.max.kbytes"
                )
            core.unfinished += 1
            core.bytes += size_bytes

    def poll(self, timeout: float = -1) -> int:
        """Wait up to ``timeout`` seconds (negative: without limit) for delivery reports, and call
        their callbacks. Return how many were called.

        :raises RuntimeError: after `close`
        """
        self._check_open()
        if not isinstance(timeout, int | float):
            raise TypeError(f"must be real number, not {type(timeout).__name__}")
        core = self._core
        with core.changed:
            core.changed.wait_for(
                lambda: core.reports or core.failure is not None,
                None if timeout < 0 else timeout,
            )
        return self._serve()

    def flush(self, timeout: float = -1) -> int:
        """Send all records at once, and call the callbacks of their reports, until all are
        reported or ``timeout`` seconds are over (negative: without limit). Return `len`.

        :raises RuntimeError: after `close`
        """
        self._check_open()
        return self._flush(timeout)

    def _flush(self, timeout: float) -> int:
        core = self._core
        deadline_ms = None if timeout < 0 else clock.monotonic_ms() + round(timeout * 1000)
        core.loop.post(core.producer.begin_flush)
        try:
            while True:
                self._serve()
                with core.changed:
                    if not core.unfinished and not core.reports:
                        return 0
                    left_s = None
                    if deadline_ms is not None:
                        left_s = (deadline_ms - clock.monotonic_ms()) / 1000
                        if left_s <= 0:
                            return core.unfinished + len(core.reports)
                    core.changed.wait_for(
                        lambda: core.reports or not core.unfinished or core.failure, left_s
                    )
        finally:
            core.loop.post(core.producer.end_flush)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Let records fail that were not sent yet (_PURGE_QUEUE), and those that were sent and not
        acknowledged (_PURGE_INFLIGHT: they may be written). Their reports come with `poll`."""
        self._check_open()
        core, done = self._core, threading.Event()

        def purge() -> None:
            core.producer.purge(in_queue=in_queue, in_flight=in_flight)
            done.set()

        core.loop.post(purge)
        while blocking and core.failure is None and not done.wait(0.1):
            pass

    def close(self) -> bool:
        """Flush, and end the background thread. Return True."""
        if self._is_closed:
            return True
        self._flush(-1)
        self._is_closed = True
        self._end()
        return True

    def __len__(self) -> int:
        """The records that are not reported yet."""
        core = self._core
        with core.changed:
            return core.unfinished + len(core.reports)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> int:
        """Call the callbacks of all reports that are there now."""
        core = self._core
        if core.failure is not None:
            raise KafkaException(
                KafkaError(KafkaError._FATAL, f"the producer has failed: {core.failure!r}", True)
            )
        count = 0
        for _ in range(len(core.reports)):
            try:
                callback, error, message = core.reports.popleft()
            except IndexError:  # another thread serves, too
                break
            count += 1
            callback(error, message)
        return count

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")
