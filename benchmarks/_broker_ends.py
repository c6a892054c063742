"""Ends brokers of a cluster, by SIGTERM or SIGKILL, and measures producers and partitions."""

import time
from dataclasses import dataclass

from benchmarks._clusters import BROKERS, ClusterSide
from benchmarks._failovers import Acks, Gone, acks, longest_gap, wait_until_served
from benchmarks._load.jobs import LoadFailed
from benchmarks._load.steady import Samples, Steady, SteadyLoad
from benchmarks._report import p99_ms
from pyspark_klog.protocol.keys import ApiKey

_PAIRS_PER_S = 200.0
_QUIET_S = 3.0
_DEADLINE_S = 120.0
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Gap:
    longest_s: float
    beyond_s: float
    """From the deletion of the broker's znode to the next ack; for SIGTERM, ``longest_s`` again."""


@dataclass(frozen=True)
class Failover:
    seconds: float
    partitions: int
    """How many partitions had lost their leader."""


def gap(side: ClusterSide, version: int, is_kill: bool) -> Gap:
    """The gap in the acks of a producer that has one record outstanding and follows the leader."""
    with side.topic("gap", BROKERS) as topic:
        controller = side.controller()
        infos = side.partitions(topic)
        number = next(each for each, info in infos.items() if info.leader != controller)
        node = side.nodes[infos[number].leader]
        with acks(side, topic, number, version, controller) as producer:
            time.sleep(_QUIET_S)
            began_s = time.monotonic()
            gone_s = _end(side, node.broker_id, is_kill)
            _wait_for_ack_after(producer, max(gone_s, began_s))
            time.sleep(1.0)
        from_s, to_s = longest_gap(producer.at_s, began_s - 0.5)
        beyond_s = producer.first_after(gone_s) - gone_s if is_kill else to_s - from_s
        node.start()
        side.wait_until_whole(topic)
    return Gap(to_s - from_s, beyond_s)


def _end(side: ClusterSide, broker_id: int, is_kill: bool) -> float:
    """End a broker; return when its znode went."""
    gone = Gone(side.zookeeper, f"/brokers/ids/{broker_id}")
    node = side.nodes[broker_id]
    if is_kill:
        node.kill()
    else:
        node.stop()
    return gone.wait_s(_DEADLINE_S)


def _wait_for_ack_after(producer: Acks, moment_s: float) -> None:
    end_s = time.monotonic() + _DEADLINE_S
    while not producer.at_s or producer.at_s[-1] <= moment_s:
        if time.monotonic() > end_s:
            raise LoadFailed(f"no ack within {_DEADLINE_S:g} s after a broker went")
        time.sleep(_PAUSE_S)


def controller_killed(side: ClusterSide, topic: str) -> Failover:
    """Kill the controller, which leads a third of the partitions, and start the broker again."""
    controller = side.controller()
    led = [each for each, info in side.partitions(topic).items() if info.leader == controller]
    others = [each for each in side.nodes if each != controller]
    if not led:
        raise LoadFailed(f"{side.name}: the controller, broker {controller}, leads nothing")
    gone = Gone(side.zookeeper, "/controller")
    node = Gone(side.zookeeper, f"/brokers/ids/{controller}")
    side.nodes[controller].kill()
    gone_s = gone.wait_s(_DEADLINE_S)
    served_s = wait_until_served(side, topic, led, others, _DEADLINE_S)
    node.wait_s(_DEADLINE_S)
    side.nodes[controller].start()
    side.wait_until_whole(topic)
    side.elect_preferred(topic)
    return Failover(served_s - gone_s, len(led))


def beside_failover(side: ClusterSide, topic: str) -> tuple[float, int, float]:
    """Produce latency at the controller while another broker is killed.

    Return the p99 in ms during the failover, the number of its samples, and the p99 before.
    """
    controller = side.controller()
    versions = side.newest_version(ApiKey.PRODUCE), side.newest_version(ApiKey.FETCH)
    with side.topic("steady", BROKERS, replicas=1) as steady, SteadyLoad() as load:
        infos = side.partitions(steady)
        number = next(each for each, info in infos.items() if info.leader == controller)
        victim = next(each for each in side.nodes if each != controller)
        other = next(each for each in side.nodes if each not in (controller, victim))
        infos = side.partitions(topic)
        led = [each for each, info in infos.items() if info.leader == victim]
        load.start_load(Steady(side.target(steady, number), *versions, _PAIRS_PER_S))
        try:
            time.sleep(_QUIET_S * 2)
            began_s = time.monotonic()
            gone_s = _end(side, victim, is_kill=True)
            served_s = wait_until_served(side, topic, led, [controller, other], _DEADLINE_S)
            time.sleep(0.5)
        finally:
            samples: Samples = load.stop_load()
        side.nodes[victim].start()
        side.wait_until_whole(topic)
    (during_ms, _), count = p99_ms(samples, [(gone_s, served_s + 0.25)])
    (without_ms, _), _ = p99_ms(samples, [(began_s - _QUIET_S, began_s)])
    return during_ms, count, without_ms
