"""A follower's Fetch: the check of its sender, and the progress that it reports.

Only brokers of the cluster may send such a Fetch, through the inter-broker listener. In a fetch
session, a follower's request lists a partition at least when the follower has made progress there.
The leader notes the progress once, in the event-loop turn that reads the request. While the fetch
waits, and for session partitions that the request does not list, the follower has made no progress.
"""

from __future__ import annotations

from collections.abc import Callable

from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.replication.errors import NotAReplica, StaleBrokerEpoch
from klog_broker.replication.leader import Leader
from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, ReplicaState

_FIRST_VERSION_WITH_REPLICA_STATE = 15


def replica_of(request: FetchRequest, version: int) -> ReplicaState:
    """Return the sender's replica id, negative for consumers, and its broker epoch or -1."""
    if version < _FIRST_VERSION_WITH_REPLICA_STATE:
        return ReplicaState(replica_id=request.replica_id)
    return request.replica_state


FollowerRefusal = Callable[[str], ErrorCode | None]
"""Returns the error for a follower's Fetch that arrived on the listener with this name, or None if
it is accepted."""


def no_followers(_listener: str) -> ErrorCode:
    """Refuse any follower: a standalone broker has the only replica, so a client with a replica id
    is mistaken."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def followers_on(brokers_listener: str) -> FollowerRefusal:
    """Return the FollowerRefusal of a broker in a cluster: followers use the inter-broker listener
    only."""

    def refusal(listener: str) -> ErrorCode | None:
        return None if listener == brokers_listener else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return refusal


def follower_of(
    sent_by: ReplicaState, refusal: FollowerRefusal, listener: str
) -> FetchingFollower | None:
    """Return the follower that sent the fetch; None for a consumer."""
    if sent_by.replica_id < 0:
        return None
    return FetchingFollower(BrokerId(sent_by.replica_id), sent_by.replica_epoch, refusal(listener))


class FetchingFollower:
    """The follower that sent one Fetch."""

    def __init__(self, broker_id: BrokerId, broker_epoch: int, refusal: ErrorCode | None) -> None:
        self.broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._refusal = refusal

    def check(self, leader: Leader, request: FetchPartition) -> None:
        """Raise BrokerError unless the follower may read the partition. The caller has compared the
        leader epoch if the request has one. A request without a leader epoch is refused, because
        the follower's log may differ from the leader's."""
        if self._refusal is not None:
            raise BrokerError(self._refusal)
        if request.current_leader_epoch < 0:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            leader.replicas.check_fetch(self.broker_id, self._broker_epoch)
        except StaleBrokerEpoch as error:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from None
        except NotAReplica as error:
            # The same error as in Kafka: this leader may not know yet that the sender is a replica.
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, str(error)) from None

    def note_progress(self, leader: Leader, each: ReadPartition) -> None:
        """Tell the leader, once for each request, that the follower has all records before the
        fetch offset (Leader.fetched). Do nothing if the fetch offset is outside of the leader's
        log."""
        request, log = each.request, leader.log
        if each.is_noted:
            return
        if not log.log_start_offset <= request.fetch_offset <= log.log_end_offset:
            return
        each.is_noted = True
        fetch = FollowerFetch(request.fetch_offset, request.log_start_offset, self._broker_epoch)
        leader.fetched(self.broker_id, fetch)
        each.high_watermark = log.high_watermark
        each.last_stable_offset = log.last_stable_offset
