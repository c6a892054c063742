"""Connects the group coordinator to its broker: settings, leaderships, and FindCoordinator."""

from klog_broker.config import BrokerConfig
from klog_broker.coordinator.group.classic.group_machine import GroupSettings
from klog_broker.coordinator.group.coordinator import (
    CONSUMER_OFFSETS,
    CoordinatorSettings,
    GroupCoordinator,
)
from klog_broker.handlers.context import BrokerServices
from klog_broker.handlers.coordinator_hosting import follow_leaderships, runtime_services
from klog_broker.handlers.state_topics import CoordinatorFinder
from pyspark_klog.protocol.wire import MAX_STRING_BYTES
from pyspark_klog.records.compression import Codec

GROUP_KEY_TYPE = 0


def coordinator_settings(config: BrokerConfig) -> CoordinatorSettings:
    """The broker's group.* and offsets.* settings."""
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
    """The id of a new member: the client id or the group.instance.id, of a very long one as much as
    leaves an answer with the id one that can be sent; then what makes the id unique."""
    ending = f"-{unique}"
    most_bytes = MAX_STRING_BYTES - len(ending)
    return named_after.encode()[:most_bytes].decode(errors="ignore") + ending


def start_groups(broker: BrokerServices) -> GroupCoordinator:
    """Make the coordinator; it begins to load the partitions of ``__consumer_offsets`` that this
    broker leads."""
    finder = CoordinatorFinder(
        broker,
        CONSUMER_OFFSETS,
        lambda group_id: groups.find(group_id),
    )
    groups = GroupCoordinator(
        coordinator_settings(broker.config),
        runtime_services(broker),
        new_member_id=lambda named_after: new_member_id(named_after, str(broker.chance.uuid())),
        num_partitions=finder.num_partitions,
    )
    follow_leaderships(broker, CONSUMER_OFFSETS, groups)
    broker.find_coordinator[GROUP_KEY_TYPE] = finder.find
    broker.on_topic_deleted.append(groups.forget_topic)
    return groups
