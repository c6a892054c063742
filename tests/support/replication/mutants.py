"""Replication with a bug, put in on purpose: each breaks a promise in some seed of the model."""

from dataclasses import replace
from typing import Any

from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.replication import follower_state, leader_replicas
from klog_broker.replication.follower_state import FetchPosition, FollowerState
from klog_broker.replication.isr_changes import CommittedIsr, IsrChange, IsrOutcome, IsrResult
from klog_broker.replication.leader_replicas import AcksAll, LeaderReplicas
from pyspark_klog.ids import BrokerId, Offset
from tests.simulation.mutants.mutant import Mutant
from tests.support.replication.log_model import ModelLog
from tests.support.replication.replicated_broker import ModelBroker, ModelController


def _watermark_falls(original: Any) -> Any:
    return lambda before, own_end, ends: Offset(max(0, min((own_end, *ends))))


def _starts_at_log_end(original: Any) -> Any:
    return lambda broker: broker.log.log_end_offset


def _ignores_joiners(original: Any) -> Any:
    def watermark(
        self: LeaderReplicas, before: int, own_end: int, leader_end: int, now_ms: int
    ) -> Offset:
        if not self.is_enough_in_sync:
            return Offset(before)
        ends = [
            self.followers[each].log_end_offset
            for each in self.in_sync.members
            if each != self.broker_id
        ]
        return Offset(max(before, min((own_end, *ends))))

    return watermark


def _truncates_to_watermark(original: Any) -> Any:
    return lambda broker: broker.log.truncate(broker.log.high_watermark)


def _appends_all_epochs(original: Any) -> Any:
    return lambda log, epochs, leader_epoch: None


def _takes_zombies_sets(original: Any) -> Any:
    def alter(self: ModelController, broker: BrokerId, epoch: int, change: IsrChange) -> IsrResult:
        members = tuple(each.broker_id for each in change.members)
        self.state = replace(self.state, in_sync=members)
        self.partition_epoch += 1
        return CommittedIsr(change.leader_epoch, self.partition_epoch, members)

    return alter


def _takes_members_of_any_broker_epoch(original: Any) -> Any:
    def alter(self: ModelController, broker: BrokerId, epoch: int, change: IsrChange) -> IsrResult:
        members = tuple(
            each._replace(broker_epoch=self.registered.get(each.broker_id, each.broker_epoch))
            for each in change.members
        )
        answer: IsrResult = original(self, broker, epoch, change._replace(members=members))
        return answer

    return alter


def _safe_at_append(original: Any) -> Any:
    return lambda replicas, required_offset, high_watermark: AcksAll.SAFE


def _ignores_min_in_sync(original: Any) -> Any:
    return property(lambda replicas: 1)


def _any_error_takes_back(original: Any) -> Any:
    return lambda error: IsrOutcome.REFUSED


def _joins_before_epoch_start(original: Any) -> Any:
    return lambda end, *, high_watermark, epoch_start_offset: end >= high_watermark


def _anybody_joins(original: Any) -> Any:
    return lambda end, **bounds: True


def _fetches_before_flush(original: Any) -> Any:
    def position(self: FollowerState, now_ms: int, *, flushes_first: bool) -> FetchPosition | None:
        found: FetchPosition | None = original(self, now_ms, flushes_first=False)
        return found

    return position


def _cuts_to_leaders_end(original: Any) -> Any:
    def truncation_offset(leaders: EpochEndOffset, own: EpochEndOffset, end: int) -> Offset:
        return Offset(min(leaders.end_offset, end))

    return truncation_offset


def _never_cuts(original: Any) -> Any:
    return lambda leaders, own, end: Offset(end)


def _takes_answers_for_elsewhere(original: Any) -> Any:
    """The answer to an earlier Fetch is taken for one to the present."""

    def handle_response(self: FollowerState, asked: FetchPosition, part: Any, now_ms: int) -> Any:
        return original(self, self._position(), part, now_ms)

    return handle_response


def _forgets_bounces(original: Any) -> Any:
    def bounced(controller: ModelController, broker: BrokerId) -> LeaderAndIsr | None:
        return None

    return bounced


MUTANTS = (
    Mutant("watermark falls", leader_replicas, "reached_watermark", _watermark_falls),
    Mutant("watermark starts at log end", ModelBroker, "first_watermark", _starts_at_log_end),
    Mutant("watermark ignores joiners", LeaderReplicas, "watermark", _ignores_joiners),
    Mutant("truncation to watermark", ModelBroker, "begin_to_follow", _truncates_to_watermark),
    Mutant("newer epoch appended", ModelLog, "check_epochs", _appends_all_epochs),
    Mutant("zombie's ISR taken", ModelController, "alter", _takes_zombies_sets),
    Mutant(
        "member of any life taken", ModelController, "alter", _takes_members_of_any_broker_epoch
    ),
    Mutant("acks=all at append", LeaderReplicas, "acks_all", _safe_at_append),
    Mutant("min ISR ignored", LeaderReplicas, "min_in_sync_replicas", _ignores_min_in_sync),
    Mutant("any error takes back", leader_replicas, "after_error", _any_error_takes_back),
    Mutant("joins before epoch start", leader_replicas, "may_join", _joins_before_epoch_start),
    Mutant("anybody joins", leader_replicas, "may_join", _anybody_joins),
    Mutant("fetches before flush", FollowerState, "position", _fetches_before_flush),
    Mutant("cuts to leader's end", follower_state, "truncation_offset", _cuts_to_leaders_end),
    Mutant("never cuts", follower_state, "truncation_offset", _never_cuts),
    Mutant("stale answer taken", FollowerState, "handle_response", _takes_answers_for_elsewhere),
    Mutant("bounce forgotten", ModelController, "bounced", _forgets_bounces),
)

SEEDS = {
    "watermark falls": 1,
    "watermark starts at log end": 12,
    "watermark ignores joiners": 433,
    "truncation to watermark": 12,
    "newer epoch appended": 535,
    "zombie's ISR taken": 12,
    "acks=all at append": 1,
    "min ISR ignored": 16,
    "anybody joins": 0,
    "cuts to leader's end": 25,
    "never cuts": 1,
    "stale answer taken": 28,
}
"""The first seed in which a bug breaks a promise. For the others none is kept for the model as it
is now."""
