"""Applies a fault of the plan to a cluster, and ends it."""

import contextlib
from collections.abc import Callable, Iterator

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from pyspark_klog.testing import KlogCluster
from tests.soak.cluster.cluster_view import seen_by, session_of
from tests.soak.cluster.plan import Fault, Kind
from tests.soak.cluster.proxies import ZOOKEEPER
from tests.soak.cluster.split_cluster import SplitCluster
from tests.soak.transactions.feed import SOURCE
from tests.support.zookeeper.server import expire

CLIENT: dict[str, str | int] = {
    # A broker may be suspended while others take over its partitions.
    "socket.timeout.ms": 6_000,
    "topic.metadata.refresh.interval.ms": 1_000,
}
"""Settings of librdkafka."""
_PAUSES = (Kind.PAUSE, Kind.PAUSE_PAST_SESSION, Kind.PAUSE_CONTROLLER)


def whose(fault: Fault, cluster: KlogCluster) -> int:
    """The number of the broker that a fault hits: a leader or the controller, if it says so."""
    sights = [sight for sight in map(seen_by, cluster.brokers) if sight is not None]
    sight = sights[0] if sights else None
    if sight is not None and fault.kind in (Kind.KILL_CONTROLLER, Kind.PAUSE_CONTROLLER):
        return sight.controller if sight.controller > 0 else fault.broker
    if sight is not None and fault.kind is Kind.KILL_LEADER:
        leader = sight.leaders.get((SOURCE, fault.broker), -1)
        return leader if leader > 0 else fault.broker
    return fault.broker


@contextlib.contextmanager
def befallen(
    fault: Fault, who: int, cluster: SplitCluster, rest: Callable[[], None]
) -> Iterator[None]:
    """Apply the fault; at the end of the with statement, end it and start killed brokers again.

    ``who`` is the broker that the fault hits. ``rest`` waits until the cluster is whole.
    """
    ways = cluster.ways
    other = fault.other if fault.other != who else fault.broker
    third = 6 - who - other
    hit = {
        Kind.KILL_LEADER: [who],
        Kind.KILL_CONTROLLER: [who],
        Kind.STOP: [who],
        Kind.KILL_TWO: [who, other],
        Kind.KILL_ALL: [who, other, third],
    }.get(fault.kind, [])
    for number in hit:
        broker = cluster.broker(number)
        broker.stop() if fault.kind is Kind.STOP else broker.kill()
    match fault.kind:
        case Kind.ROLLING:
            for number in (who, other, third):
                cluster.broker(number).stop()
                cluster.broker(number).start()
                rest()
        case kind if kind in _PAUSES:
            cluster.broker(who).pause()
        case Kind.SPLIT:
            ways.split(who, other)
        case Kind.ONE_WAY:
            ways.cut(who, other)
        case Kind.ALONE:
            for each in (other, third, ZOOKEEPER):
                ways.split(who, each)
        case Kind.NO_ZOOKEEPER:
            ways.split(who, ZOOKEEPER)
        case Kind.BREAK:
            ways.break_all()
        case Kind.EXPIRE:
            session = session_of(cluster, who)
            if session is not None:
                expire(cluster.zookeeper, session)
        case Kind.ZOOKEEPER_RESTART:
            cluster.zookeeper.kill()
        case Kind.ZOOKEEPER_PAUSE:
            cluster.zookeeper.pause()
        case Kind.MOVE:
            _elect_preferred(cluster)
    try:
        yield
    finally:
        if fault.kind in _PAUSES:
            cluster.broker(who).resume()
        elif fault.kind is Kind.ZOOKEEPER_RESTART:
            cluster.zookeeper.start()
        elif fault.kind is Kind.ZOOKEEPER_PAUSE:
            cluster.zookeeper.resume()
        ways.heal()
        for number in hit:
            cluster.broker(number).start()


def _elect_preferred(cluster: KlogCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **CLIENT})
    # The election may fail, because an earlier fault may not be over.
    with contextlib.suppress(KafkaException):
        admin.elect_leaders(ElectionType.PREFERRED, None).result(10)
