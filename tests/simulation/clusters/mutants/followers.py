"""Bugs of followers: in where they truncate their logs, and in what they append."""

from copy import deepcopy
from typing import Any

from klog_broker.fetch import reader
from klog_broker.log.append.follower_append import FollowerAppender
from klog_broker.log.maintenance.record_removal import RecordRemoval
from klog_broker.replication.follower import FollowedPartition
from tests.simulation.clusters.mutants.leaders import of_the_model
from tests.simulation.mutants.mutant import Mutant


def _to_watermark(original: Any) -> Any:
    def init(followed: Any, *arguments: Any, **named: Any) -> None:
        """A new follower truncates its log to its high watermark, as Kafka did before KIP-101."""
        original(followed, *arguments, **named)
        state, log = followed._state, followed._log
        if log.high_watermark < log.log_end_offset and not log.is_being_cut:
            followed._perform(state._cut(state._position(), log.high_watermark), None)

    return init


def _keeps_producers(original: Any) -> Any:
    def cut_files(removal: Any, offset: Any) -> None:
        """Truncation leaves the producers' state as it was."""
        producers = removal._state.producers
        entries = deepcopy(producers._entries)
        original(removal, offset)
        producers._entries = entries

    return cut_files


def _any_epoch(original: Any) -> Any:
    def follow(appender: Any, records: Any, _leader_epoch: Any, *rest: Any, **named: Any) -> Any:
        """A follower appends records of any leader epoch."""
        return original(appender, records, 1 << 30, *rest, **named)

    return follow


def _serves_anybody(_original: Any) -> Any:
    def check_leader_epoch(_leader: Any, _current_leader_epoch: int) -> None:
        """A leader serves a follower of an older epoch, so that newer records reach it."""

    return check_leader_epoch


MUTANTS = (
    Mutant("truncation to the watermark", FollowedPartition, "__init__", _to_watermark),
    Mutant(
        "newer epoch appended",
        FollowerAppender,
        "_plan_append",
        _any_epoch,
        also=Mutant("", reader, "check_leader_epoch", _serves_anybody),
    ),
    Mutant("producers kept over truncation", RecordRemoval, "_cut_files", _keeps_producers),
    of_the_model("never cuts"),
)
