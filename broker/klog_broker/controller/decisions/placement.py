"""Assigns the replicas of new partitions to brokers: Kafka's rules, with and without racks.

The functions perform no I/O. The leaders of consecutive partitions are consecutive brokers of a
list, beginning at a start that the caller chooses. The followers stand in the list behind the
leader, at a distance that grows whenever each broker leads one partition more. So the partitions of
one leader have their followers on different brokers. If every broker has a rack, the list of
brokers alternates between the racks, and the replicas of a partition are in as many racks as
possible.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

from pyspark_klog.ids import BrokerId

Assignment = tuple[tuple[BrokerId, ...], ...]
"""For each partition, the brokers of its replicas, the preferred leader first."""


def place_replicas(
    racks: Mapping[BrokerId, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> Assignment:
    """Assign replicas to as many partitions as `partitions`, from number `first_partition` on.

    `racks` maps each broker to its rack; racks are ignored unless every broker has one. `start` is
    the index of partition 0's leader in the list of brokers. `shift` is how far, without racks, the
    first followers of the first partitions stand from their leaders: 0 means that they are the next
    brokers in the list. The number of brokers must be at least the replication factor.
    """
    named = {broker: rack for broker, rack in racks.items() if rack is not None}
    if len(named) < len(racks):
        named = {}
    brokers = _taken_in_turn(named) if named else sorted(racks)
    count = len(brokers)
    # In a round, each broker leads one partition. The assignments repeat after `rounds` rounds,
    # because a first follower has only so many possible distances from its leader. So compute at
    # most `count * rounds` assignments, which saves time for topics with very many partitions.
    rounds = max(1, count - 1)
    begun = (first_partition - 1) // count if first_partition else 0
    rows = []
    for partition in range(first_partition, first_partition + min(partitions, count * rounds)):
        leader = (partition + start) % count
        distance = shift + partition // count - begun
        rows.append(_replicas(brokers, named, leader, distance, replication_factor))
    return tuple(islice(cycle(rows), partitions))


def start_of_more(racks: Mapping[BrokerId, str | None], first_leader: BrokerId) -> int:
    """Return the place of `first_leader`, a topic's first preferred leader, among all broker ids in
    ascending order.

    For partitions to be added to the topic, the caller passes this number to `place_replicas` both
    as `start` (the place of partition 0's leader) and as `shift` (the distance from a leader to its
    first follower). The new partitions continue the placement of the present ones only if the topic
    was created with equal `start` and `shift`, because the shift of a topic is not stored, and only
    without racks, because `place_replicas` orders brokers with racks differently. If the broker
    `first_leader` is gone, the result is the place of the next higher id, or 0 if there is none.
    """
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
    """The brokers, alternating between racks: the first of each rack, then the second of each."""
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
