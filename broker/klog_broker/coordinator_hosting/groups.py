"""Makes the group coordinator of a broker, with the broker's settings."""

from typing import Protocol

from klog_broker.config import BrokerConfig
from klog_broker.coordinator.group.classic.group_machine import GroupSettings
from klog_broker.coordinator.group.coordinator import (
    CONSUMER_OFFSETS,
    CoordinatorSettings,
    GroupCoordinator,
)
from klog_broker.coordinator_hosting.hosting import HostingServices, runtime_services
from klog_broker.coordinator_hosting.state_topics import StateTopic
from klog_broker.metadata.interface import MetadataStore
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.protocol.wire import MAX_STRING_BYTES
from pyspark_klog.records.compression import Codec


def coordinator_settings(config: BrokerConfig) -> CoordinatorSettings:
    """The group.* and offsets.* settings of the broker that the group coordinator uses."""
    return CoordinatorSettings(
        group=GroupSettings(
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            max_size=config["group.max.size"],
        ),
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        commit_timeout_ms=config["offsets.commit.timeout.ms"],
        retention_ms=config["offsets.retention.minutes"] * 60_000,
        retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        codec=Codec(config["offsets.topic.compression.codec"]),
    )


def new_member_id(named_after: str, unique: str) -> str:
    """The id of a new member: the client id or group.instance.id, a hyphen, and ``unique``.

    A very long client id is cut, so that the id can still be encoded in a response.
    """
    ending = f"-{unique}"
    most_bytes = MAX_STRING_BYTES - len(ending)
    return named_after.encode()[:most_bytes].decode(errors="ignore") + ending


class GroupHosting(HostingServices, Protocol):
    """The services that the group coordinator needs."""

    @property
    def chance(self) -> Chance: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def metadata(self) -> MetadataStore: ...


def new_groups(services: GroupHosting) -> GroupCoordinator:
    """Make the group coordinator, without partitions; ``follow_leaderships`` later adds the
    partitions of ``__consumer_offsets`` that this broker leads."""
    return GroupCoordinator(
        coordinator_settings(services.config),
        runtime_services(services),
        new_member_id=lambda named_after: new_member_id(named_after, str(services.chance.uuid())),
        num_partitions=StateTopic(lambda: services.metadata, CONSUMER_OFFSETS).num_partitions,
    )
