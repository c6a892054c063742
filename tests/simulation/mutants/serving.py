"""Bugs in appending, acknowledging and reading records, and in responses."""

from typing import Any

from klog_broker.api import fetch
from klog_broker.fetch.partition_read import Reads
from klog_broker.fetch.reader import FetchReader
from klog_broker.fetch.sessions import FetchSession, SessionPartition
from klog_broker.lifecycle import settings_in_force
from klog_broker.lifecycle.settings_in_force import SettingsInForce
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers import producer_state
from klog_broker.log.producers.producer_state import ProducerStates
from klog_broker.metadata.changes import AllocateProducerIds
from klog_broker.produce.pipeline import ProducePipeline
from klog_broker.runtime.event_loop.purgatory import Purgatory
from tests.simulation.mutants.mutant import Mutant


def _watermark_falls(original: Any) -> Any:
    def flushed(log: Any) -> None:
        """A flush lowers the high watermark to the flushed offset."""
        original(log)
        log._state.high_watermark = log.flushed_offset

    return flushed


def _ack_before_append(original: Any) -> Any:
    def append(pipeline: Any, leader: Any, append: Any, result: Any) -> bool:
        """The response gives the present log end; the records are appended a little later."""
        waits = append.pending.acks == -1 or leader.log.config.responses_wait_for_flush
        if result is not None or waits:
            return original(pipeline, leader, append, result)
        later = append._replace(
            records=bytearray(append.records), answer=type(append.answer)(index=append.answer.index)
        )
        append.answer.base_offset = leader.log.log_end_offset
        loop = pipeline._services.loop
        loop.call_later(20, lambda: original(pipeline, leader, later, None))
        return True

    return append


def _shows_too_much(original: Any) -> Any:
    def init(reader: Any, *arguments: Any) -> None:
        """Every reader reads to the log end, as followers do."""
        original(reader, *arguments)
        reader._reads = Reads.ALL

    return init


def _ahead_of_flush(original: Any) -> Any:
    def count_appended(log: Any) -> None:
        """Readers see all records, synced or not."""
        original(log)
        log.set_high_watermark(log.log_end_offset)

    return count_appended


def _window_of_one_less(_original: Any) -> Any:
    return producer_state.WINDOW_BATCHES - 1


def _any_sequence(original: Any) -> Any:
    def check(states: Any, head: Any, **more: Any) -> Any:
        """A duplicate batch is appended again."""
        entry = states.get(head.producer_id)
        if entry is not None and entry.duplicate_of(head) is not None:
            return None
        return original(states, head, **more)

    return check


def _loses_wake_ups(original: Any) -> Any:
    def check(purgatory: Any, key: Any) -> int:
        """Every third check of a key wakes no request."""
        count = purgatory.__dict__["checks"] = purgatory.__dict__.get("checks", 0) + 1
        return 0 if count % 3 == 0 else original(purgatory, key)

    return check


def _ids_twice(original: Any) -> Any:
    def plan(change: Any, draft: Any) -> Any:
        """The block of producer ids is handed out, but not written."""
        before = draft.next_producer_id
        orders = yield from original(change, draft)
        draft.next_producer_id = before
        return orders

    return plan


def _dirty_mark_lost(original: Any) -> Any:
    def on_checked(each: Any) -> None:
        """One in five times a session does not learn that a partition has new records."""
        counts = each._session._purgatory.__dict__
        count = counts["marks"] = counts.get("marks", 0) + 1
        if count % 5 == 0:
            each.is_listening = False
            return
        original(each)

    return on_checked


def _any_epoch(original: Any) -> Any:
    def scope_of(request: Any, version: int, services: Any, *named: Any) -> Any:
        """The request is taken for the session's next one."""
        session = services.fetch_sessions.find(request.session_id)
        if session is not None and request.session_epoch > 0:
            request.session_epoch = session.epoch
        return original(request, version, services, *named)

    return scope_of


def _forgets_nothing(_original: Any) -> Any:
    def forget(_session: Any, _key: Any) -> None:
        """A partition that the client has named once stays in the session."""

    return forget


def _forgets_settings(_original: Any) -> Any:
    def apply_stored(settings: Any, image: Any) -> None:
        """A start forgets the settings that were given to the broker in earlier runs."""
        settings._stored = image.broker_configs

    return apply_stored


def _follows_nothing(_original: Any) -> Any:
    def follow(_settings: Any) -> Any:
        """The logs keep the settings that they have."""
        yield from ()

    return follow


MUTANTS = (
    Mutant("watermark falls", PartitionLog, "_flushed", _watermark_falls),
    Mutant("fetch passes the watermark", FetchReader, "__init__", _shows_too_much),
    Mutant("watermark ahead of flush", PartitionLog, "_count_appended", _ahead_of_flush),
    Mutant("ack before append", ProducePipeline, "_append", _ack_before_append),
    Mutant("sequence window off by one", producer_state, "WINDOW_BATCHES", _window_of_one_less),
    Mutant("duplicate appended again", ProducerStates, "check_client_batch", _any_sequence),
    Mutant("wake-up lost", Purgatory, "check", _loses_wake_ups),
    Mutant("session's dirty mark lost", SessionPartition, "on_checked", _dirty_mark_lost),
    Mutant("session's epoch not checked", fetch, "scope_of", _any_epoch),
    Mutant("session forgets nothing", FetchSession, "remove_partition", _forgets_nothing),
    Mutant("producer ids not written down", AllocateProducerIds, "plan", _ids_twice),
    Mutant("broker's settings forgotten", SettingsInForce, "apply_stored", _forgets_settings),
    Mutant("logs keep their settings", settings_in_force, "_follow", _follows_nothing),
)
