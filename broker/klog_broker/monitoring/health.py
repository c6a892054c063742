"""Whether the broker is ready for clients, and which of its partitions are affected by a failure.

Computed when a probe asks, in steps, because a broker may have many thousand partitions.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from enum import StrEnum
from typing import NamedTuple

from klog_broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.coordinator.transaction.coordinator import TRANSACTION_STATE
from klog_broker.monitoring.sources import Sources
from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Offline, Partition

MOST_NAMES = 100
"""The most partitions that `/ready` and `/health` name for each failure; they count all."""

_PARTITIONS_A_STEP = 100
_STEP_ELEMENTS = 20


class State(StrEnum):
    """The state of a broker in `/health` and `/ready`."""

    STOPPING = "stopping"
    STARTING = "starting"
    NO_SESSION = "no-zookeeper-session"
    NO_DIRECTORY = "no-usable-directory"
    READY = "ready"


class Health(NamedTuple):
    """The answer to a health probe."""

    state: State
    body: bytes

    @property
    def is_ready(self) -> bool:
        """Whether clients should use this broker, though a failure may affect some partitions."""
        return self.state is State.READY


def health_state(sources: Sources) -> State:
    """Return the state of the broker as a whole."""
    session = sources.cluster.zookeeper_counts()
    directories = sources.services.logs.directories
    if sources.is_stopping():
        return State.STOPPING
    if sources.is_starting():
        return State.STARTING
    if session is not None and not session.is_connected:
        return State.NO_SESSION
    if all(each.is_offline or each.space.refuses_clients for each in directories):
        return State.NO_DIRECTORY
    return State.READY


def health(sources: Sources) -> Generator[int, None, Health]:
    """Yield the cost of each step, in elements (units of about 5 us of work), then return the
    broker's health."""
    affected: dict[str, _Affected] = {}
    for number, partition in enumerate(list(sources.services.replicas.partitions()), 1):
        for failure in _failures(partition):
            affected.setdefault(failure, _Affected()).add(str(partition.topic_partition))
        if number % _PARTITIONS_A_STEP == 0:
            yield _STEP_ELEMENTS
    for failure, name in _coordinator_failures(sources):
        affected.setdefault(failure, _Affected()).add(name)
    session = sources.cluster.zookeeper_counts()
    directories = sources.services.logs.directories
    state = health_state(sources)
    answer = {
        "state": state,
        "zookeeper_connected": None if session is None else session.is_connected,
        "offline_directories": [str(each.path) for each in directories if each.is_offline],
        "full_directories": [
            str(each.path)
            for each in directories
            if each.space.refuses_clients and not each.is_offline
        ],
        "affected_partitions": {
            failure: {"count": found.count, "partitions": found.names}
            for failure, found in sorted(affected.items())
        },
    }
    return Health(state, json.dumps(answer).encode() + b"\n")


class _Affected:
    """The partitions that one kind of failure affects."""

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.names) < MOST_NAMES:
            self.names.append(name)


def _failures(partition: Partition) -> Iterator[str]:
    role = partition.role
    if isinstance(role, Offline):
        yield "offline"
    elif isinstance(role, Leader):
        if not role.has_free_space:
            yield "disk_full"
        if not role.is_enough_in_sync:
            yield "under_min_isr"


def _coordinator_failures(sources: Sources) -> Iterator[tuple[str, str]]:
    services = sources.services
    for topic, coordinator in (
        (CONSUMER_OFFSETS, services.groups),
        (TRANSACTION_STATE, services.transactions),
    ):
        for failure, status in (
            ("coordinator_loading", ShardStatus.LOADING),
            ("coordinator_failed", ShardStatus.FAILED),
        ):
            for partition in coordinator.partitions_in(status):
                yield failure, f"{topic}-{partition}"
