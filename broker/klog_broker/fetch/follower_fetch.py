"""A Fetch of a follower: who may send it, and what it tells the leader.

Only brokers of the cluster send it, over their own listener. A follower names a partition when it
has got further there; what it names the leader notes once, in the turn in which the request is
read. While the fetch waits, and for partitions of its session that it does not name, nothing has
happened at the follower.
"""

from __future__ import annotations

from collections.abc import Callable

from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.replication.errors import EarlierLife, NotAReplica
from klog_broker.replication.leader import Leader
from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, ReplicaState

_FIRST_VERSION_WITH_REPLICA_STATE = 15


def replica_of(request: FetchRequest, version: int) -> ReplicaState:
    """The replica that sends it, below 0 for consumers, and the epoch of its broker, or -1."""
    if version < _FIRST_VERSION_WITH_REPLICA_STATE:
        return ReplicaState(replica_id=request.replica_id)
    return request.replica_state


FollowerRefusal = Callable[[str], ErrorCode | None]
"""Why a follower's Fetch that came through the listener of this name is refused; None if it is
not."""


def no_followers(_listener: str) -> ErrorCode:
    """The FollowerRefusal of a standalone broker: it has the only replica, and a client that calls
    itself another replica is mistaken."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def followers_on(brokers_listener: str) -> FollowerRefusal:
    """The FollowerRefusal of a broker in a cluster: followers come through one listener only."""

    def refusal(listener: str) -> ErrorCode | None:
        return None if listener == brokers_listener else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return refusal


def follower_of(sent_by: ReplicaState, refusal: FollowerRefusal, listener: str) -> Follower | None:
    """None for a consumer."""
    if sent_by.replica_id < 0:
        return None
    return Follower(BrokerId(sent_by.replica_id), sent_by.replica_epoch, refusal(listener))


class Follower:
    """Who sends one Fetch."""

    def __init__(self, broker_id: BrokerId, broker_epoch: int, refusal: ErrorCode | None) -> None:
        self.broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._refusal = refusal

    def check(self, leader: Leader, request: FetchPartition) -> None:
        """BrokerError unless it may read the partition. The leader epoch has been compared, if the
        request has one; without it nobody knows whether the two logs fit together."""
        if self._refusal is not None:
            raise BrokerError(self._refusal)
        if request.current_leader_epoch < 0:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            leader.replicas.check_fetch(self.broker_id, self._broker_epoch)
        except EarlierLife as error:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from None
        except NotAReplica as error:
            # As Kafka: the leader may hear later that this is a replica.
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, str(error)) from None

    def note(self, leader: Leader, each: ReadPartition) -> None:
        """The follower has all records before the offset it asks for; see Leader.fetched. Nothing
        if the log does not reach there."""
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
