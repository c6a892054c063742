"""Which brokers get the replicas of new partitions: Kafka's rules, with and without racks. Pure.

Leaders go round the brokers, one partition after the other, from a start that chance gives. The
other replicas follow at a distance that grows by one with each round, so that the partitions of
one leader have their followers on different brokers. Where each broker has a rack, the brokers are
taken from the racks in turn, and a partition's replicas are in as many racks as there can be.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

from pyspark_klog.ids import BrokerId

Assignment = tuple[tuple[BrokerId, ...], ...]
"""By partition: the brokers of its replicas. The first one is preferred as the leader."""


def place_replicas(
    racks: Mapping[BrokerId, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> Assignment:
    """The replicas of `partitions` partitions, numbered from `first_partition` on.

    `racks` has the rack of each broker; racks count only if every broker has one. `start` is the
    place of partition 0's leader among the brokers, and `shift` the distance of its followers, both
    from 0 on. There must be as many brokers as replicas at least.
    """
    named = {broker: rack for broker, rack in racks.items() if rack is not None}
    if len(named) < len(racks):
        named = {}
    brokers = _taken_in_turn(named) if named else sorted(racks)
    count = len(brokers)
    # After so many partitions everything comes again.
    rounds = max(1, count - 1)
    begun = (first_partition - 1) // count if first_partition else 0
    rows = []
    for partition in range(first_partition, first_partition + min(partitions, count * rounds)):
        leader = (partition + start) % count
        distance = shift + partition // count - begun
        rows.append(_replicas(brokers, named, leader, distance, replication_factor))
    return tuple(islice(cycle(rows), partitions))


def start_of_more(racks: Mapping[BrokerId, str | None], first_leader: BrokerId) -> int:
    """The start, and the shift, for partitions that are added to a topic whose partition 0 prefers
    `first_leader`: as the topic's own, if that began with a shift like its start."""
    brokers = sorted(racks)
    return next((place for place, broker in enumerate(brokers) if broker >= first_leader), 0)


def _replicas(
    brokers: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    leader: int,
    distance: int,
    replication_factor: int,
) -> tuple[BrokerId, ...]:
    chosen = [brokers[leader]]
    rack_count = len(set(racks.values()))
    used = {racks[brokers[leader]]} if racks else set[str]()
    distance *= max(1, rack_count)
    while len(chosen) < replication_factor:
        step = 1 + distance % (len(brokers) - 1)
        distance += 1
        broker = brokers[(leader + step) % len(brokers)]
        if not racks:
            chosen.append(broker)
        elif broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)


def _taken_in_turn(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """The brokers, from one rack after the other: the first of each, then the second of each."""
    by_rack: dict[str, list[BrokerId]] = {rack: [] for rack in sorted(set(racks.values()))}
    for broker in sorted(racks):
        by_rack[racks[broker]].append(broker)
    longest = max(map(len, by_rack.values()))
    return [
        brokers[place]
        for place in range(longest)
        for brokers in by_rack.values()
        if place < len(brokers)
    ]
